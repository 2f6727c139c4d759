use serde_json::json;
use switchboard_core::Door;

use super::*;
use crate::delivery;
use crate::test_workspace::{TestWorkspace, agent, inbox_file, name, write_carelessly};

/// Creates a team `crew` of a lead, two coders and one without a role.
async fn crew() -> TestWorkspace {
    let t = TestWorkspace::new(&["ann", "bob", "cid", "dan", "eve"]).await;
    t.workspace.create_team(name("crew"), None, false).await.unwrap();
    for (who, role) in [("ann", "lead"), ("bob", "coder 1"), ("cid", "coder 2"), ("dan", "none")] {
        t.workspace.assign(name(who), Some(name("crew"))).await.unwrap();
        t.workspace.assign_role(name(who), role).await.unwrap();
    }
    t
}

fn to_crew(from: &str, body: &str) -> OutgoingTeamMessage {
    OutgoingTeamMessage::new(name("Crew"), agent(from), Kind::delegate_task(), body)
}

fn members(sent: &TeamSendResult) -> Vec<String> {
    sent.members.iter().map(|member| member.member.to_string()).collect()
}

#[tokio::test]
async fn each_member_gets_its_roles_persona() {
    let t = crew().await;
    for role in ["lead", "coder"] {
        let path = t.workspace_folder().join(format!(".agent/personas/roles/{role}.md"));
        write_carelessly(&path, format!("you are the {role}"));
    }
    let outbound = t.workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
    let workspace = t.workspace.clone();
    let deliveries = tokio::spawn(async move { delivery::run(&workspace, outbound).await });
    let outgoing = OutgoingTeamMessage {
        metadata: Map::from_iter([("ticket".to_owned(), json!(7))]),
        ..to_crew("eve", "---PERSONA--- is only text")
    };
    let sent = t.workspace.send_team_message(outgoing).await.unwrap();
    let ids: Vec<MessageId> = sent.members.iter().map(|member| *member.message.as_ref().unwrap()).collect();
    for id in &ids {
        t.workspace.hub().deliveries().wait_until_settled(*id).await.unwrap();
    }
    t.workspace.hub().deliveries().close_doors();
    deliveries.await.unwrap();
    assert_eq!((sent.total_members, sent.sent), (4, 4));
    assert_eq!(members(&sent), ["ann", "bob", "cid", "dan"]);
    let has_persona: Vec<bool> = sent.members.iter().map(|member| member.has_persona).collect();
    assert_eq!(has_persona, [true, true, true, false]);
    let personas = [Some("you are the lead"), Some("you are the coder"), Some("you are the coder"), None];
    for ((who, id), persona) in ["ann", "bob", "cid", "dan"].into_iter().zip(&ids).zip(personas) {
        let file = t.json(&inbox_file(who, *id));
        let mut expected = json!({
            "id": crate::to_native(*id), "action": "delegate_task", "sender": "eve", "recipient": who,
            "payload": "---PERSONA--- is only text", "metadata": { "ticket": 7 }, "team": "crew",
            "createdAt": file["createdAt"],
        });
        if let Some(persona) = persona {
            expected["persona"] = persona.into();
        }
        assert_eq!(file, expected);
    }
    let mut distinct = ids.clone();
    distinct.dedup();
    assert_eq!(distinct, ids, "each copy has an id of its own");
}

#[tokio::test]
async fn role_filter_selects_members() {
    let t = crew().await;
    for (filter, expected) in [("lead", vec!["ann"]), ("Coder_2", vec!["cid"]), ("coder", vec!["bob", "cid"])]
    {
        let outgoing = OutgoingTeamMessage { role_filter: Some(filter.into()), ..to_crew("eve", filter) };
        let sent = t.workspace.send_team_message(outgoing).await.unwrap();
        assert_eq!(
            (members(&sent), sent.total_members, sent.sent),
            (expected.iter().map(ToString::to_string).collect(), 4, expected.len())
        );
    }
    let filtered =
        |filter: &str| OutgoingTeamMessage { role_filter: Some(filter.into()), ..to_crew("ann", "x") };
    let error = t.workspace.send_team_message(filtered("tester")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "role_filter 'tester': no member of team 'crew' but perhaps the sender has that role; roles there: \
         coder 1, coder 2"
    );
    let error = t.workspace.send_team_message(filtered("lead")).await.unwrap_err();
    assert!(matches!(error, WorkspaceError::TeamSend(TeamSendError::NoneWithRole { .. })), "only the sender");
    let error = t.workspace.send_team_message(filtered("tster")).await.unwrap_err();
    assert!(error.to_string().contains("did you mean 'tester'?"), "{error}");
    assert_eq!(t.journal().await.len(), 4, "what was refused left nothing behind");
}

#[tokio::test]
async fn sender_gets_no_copy() {
    let t = crew().await;
    let sent = t.workspace.send_team_message(to_crew("BOB", "hello")).await.unwrap();
    assert_eq!(
        (members(&sent), sent.total_members, sent.sent),
        (vec!["ann".into(), "cid".into(), "dan".into()], 4, 3)
    );
}

#[tokio::test]
async fn unknown_or_empty_team_is_an_error() {
    let t = crew().await;
    let to = |team: &str| OutgoingTeamMessage { team: name(team), ..to_crew("eve", "x") };
    let error = t.workspace.send_team_message(to("crw")).await.unwrap_err();
    let WorkspaceError::Hub(HubError::Unresolved(ResolveError::UnknownTeam { near, .. })) = error else {
        panic!("{error:?}")
    };
    assert_eq!(near, ["crew"]);
    t.workspace.create_team(name("nobody"), None, false).await.unwrap();
    let error = t.workspace.send_team_message(to("nobody")).await.unwrap_err();
    assert_eq!(error.to_string(), "the group 'team:nobody' has no recipient except the sender");
    assert_eq!(t.journal().await, [""; 0]);
}

#[tokio::test]
async fn failed_copy_does_not_stop_the_others() {
    let t = crew().await;
    // The sender's metadata just fits; with the lead's persona it does not.
    write_carelessly(&t.workspace_folder().join(".agent/personas/lead.md"), "x".repeat(2000));
    let metadata = Map::from_iter([("notes".to_owned(), Value::from("x".repeat((256 << 10) - 1000)))]);
    let sent = t
        .workspace
        .send_team_message(OutgoingTeamMessage { metadata, ..to_crew("eve", "hello") })
        .await
        .unwrap();
    assert_eq!((sent.total_members, sent.sent, sent.members.len()), (4, 3, 4));
    let failed: Vec<_> = sent.members.iter().filter(|member| member.message.is_err()).collect();
    let [MemberSendResult { member, message: Err(error), .. }] = failed.as_slice() else {
        panic!("{failed:?}")
    };
    assert_eq!(*member, agent("ann"));
    assert!(matches!(error, WorkspaceError::Hub(HubError::MetadataTooLarge { .. })), "{error:?}");
    assert_eq!(t.journal().await, ["hello"; 3]);
    let error = t.workspace.send_team_message(to_crew("eve", &"x".repeat(2 << 20))).await.unwrap_err();
    let WorkspaceError::TeamSend(TeamSendError::NoneAccepted { failed, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(failed.len(), 4);
    assert!(
        error.to_string().starts_with("team 'crew': none of 4 copies was accepted: ann: the body has"),
        "{error}"
    );
}

#[tokio::test]
async fn composite_team_has_at_most_one_member() {
    let t = crew().await;
    let refused = t.workspace.create_team(name("crew"), None, true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "'crew' cannot become a composite team: it has 4 members (ann, bob, cid, dan)"
    );
    assert_eq!(t.json("state.json")["teams"]["crew"]["isComposite"], false);
    t.workspace.create_team(name("solo"), None, true).await.unwrap();
    t.workspace.assign(name("eve"), Some(name("solo"))).await.unwrap();
    t.workspace.create_team(name("solo"), Some("Alone".into()), true).await.unwrap();
    let second = t.workspace.assign(name("ann"), Some(name("solo"))).await;
    assert!(matches!(second, Err(WorkspaceError::Hub(HubError::CompositeTeam { .. }))), "{second:?}");
    let sent = t
        .workspace
        .send_team_message(OutgoingTeamMessage { team: name("solo"), ..to_crew("ann", "play them all") })
        .await
        .unwrap();
    assert_eq!(members(&sent), ["eve"]);
}

#[tokio::test]
async fn stopped_copy_does_not_count_as_sent() {
    let t = crew().await;
    let question = t.workspace.send(crate::test_workspace::outgoing("ann", "eve", "well?")).await.unwrap().id;
    let filter = |body: &str| OutgoingTeamMessage {
        role_filter: Some("lead".into()),
        in_reply_to: Some(question),
        ..to_crew("eve", body)
    };
    let mut last = None;
    for number in 0..30 {
        let sent = t.workspace.send_team_message(filter(&number.to_string())).await.unwrap();
        let is_stopped = sent.members[0].stopped.is_some();
        assert_eq!((sent.sent, sent.members[0].message.is_ok()), (usize::from(!is_stopped), true));
        last = Some(is_stopped);
    }
    assert_eq!(last, Some(true), "thirty answers at once are a storm");
}
