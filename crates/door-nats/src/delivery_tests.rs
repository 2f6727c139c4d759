use jiff::SignedDuration;
use serde_json::Map;
use switchboard_core::{AgentId, DeliveryId, Door, Kind, Milestones, NativeId, Origin};

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn message(to: &str, expires_at: Option<Timestamp>) -> Message {
    let id = MessageId::from_parts(1, 1);
    Message {
        id,
        from: AgentId::human(),
        to: to.parse().unwrap(),
        kind: Kind::delegate_task(),
        body: String::new(),
        in_reply_to: None,
        thread: id,
        sent_at: Timestamp::UNIX_EPOCH,
        expires_at,
        metadata: Map::new(),
        origin: Origin {
            native: NativeId { door: Door::Workspace, scope: String::new(), id: "1".into() },
            verified: true,
            route: None,
        },
        via: vec![],
        signed: None,
    }
}

fn delivery(route: Route, state: DeliveryState) -> Delivery {
    Delivery {
        id: DeliveryId(1),
        message: MessageId::from_parts(1, 1),
        agent: AgentId::human(),
        route,
        state,
        attempts: 0,
        note: None,
        milestones: Milestones::default(),
    }
}

#[test]
fn messages_map_to_subjects() {
    use DeliveryState::{Delivered, Expired, InFlight, Queued, Refused};
    let office = || Route::Hub { hub: name("office") };
    let mailbox = || Route::Mailbox { agent: name("codex") };
    let direct = Some("sb.lab.hub.office.message");
    let all = Some("sb.lab.group.all");
    let table = [
        ("qc-1@office", vec![delivery(office(), Queued)], direct),
        ("qc-1@office", vec![delivery(office(), InFlight)], direct),
        // Done already, or of no use any more.
        ("qc-1@office", vec![delivery(office(), Delivered)], None),
        ("qc-1@office", vec![delivery(office(), Refused)], None),
        ("qc-1@office", vec![delivery(office(), Expired)], None),
        ("codex", vec![delivery(mailbox(), Queued)], None),
        ("all", vec![delivery(mailbox(), Queued)], all),
        ("all", vec![delivery(mailbox(), Refused), delivery(office(), Refused)], None),
        ("all", vec![delivery(mailbox(), Refused), delivery(office(), Queued)], all),
        ("#general", vec![], Some("sb.lab.group.channel.general")),
        ("job:7", vec![], None),
        ("job:7/0", vec![], None),
    ];
    let posted = |to| Message {
        origin: Origin {
            route: Some(Route::Channel { channel: name("general") }),
            ..message(to, None).origin
        },
        ..message(to, None)
    };
    let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(10);
    let (subjects, me) = (Subjects::new("sb"), name("lab"));
    for (to, deliveries, expected) in table {
        let found = subject(&message(to, None), &deliveries, &subjects, &me, now);
        assert_eq!(found.as_deref(), expected, "{to}");
        assert_eq!(
            subject(&message(to, Some(now)), &deliveries, &subjects, &me, now),
            None,
            "{to}, too late"
        );
    }
    let general = Some("sb.lab.group.channel.general");
    for (to, deliveries, expected) in [
        ("qc-1@office", vec![delivery(office(), Queued)], general),
        ("codex", vec![delivery(mailbox(), Delivered)], general),
        ("codex", vec![], general),
        ("codex", vec![delivery(mailbox(), Refused)], None),
        ("team:backend", vec![], Some("sb.lab.group.team.backend")),
    ] {
        let found = subject(&posted(to), &deliveries, &subjects, &me, now);
        assert_eq!(found.as_deref(), expected, "posted in a channel to {to}");
    }
    let office = vec![delivery(office(), Queued)];
    for (message, deliveries, expected) in [
        (posted("qc-1@office"), office.clone(), Some("sb.lab.hub.office.message")),
        (posted("codex"), vec![delivery(mailbox(), Queued)], None),
        (posted("#general"), office.clone(), None),
        (message("qc-1@office", None), office, None),
    ] {
        let to = copy_to(&message, &deliveries, &subjects, &me);
        assert_eq!(to.as_deref(), expected, "{} is copied to the hub of its recipient", message.to);
    }
}
