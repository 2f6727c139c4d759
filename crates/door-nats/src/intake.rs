//! The way in: what other hubs published.
//!
//! A message of the stream is acknowledged after the journal has it and the sender's hub was told, so that nothing is
//! lost when this process ends in between; what is brought again is recognised by its id. What cannot be used is
//! skipped with a warning: a broken or hostile message never stops the ones behind it.

use std::convert::Infallible;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use switchboard_core::{Address, AgentId, Delivery, DeliveryState, MessageId, Name, ResolveError};
use switchboard_hub::{Accepted, HubError, Passed, Verdict, Word};

use crate::error::{NatsError, describe};
use crate::link::Link;
use crate::outlet::Outlet;
use crate::subject::token;
use crate::translate::{concerning, to_passed};
use crate::wire::{Became, Malformed, Parcel, ParcelKind, Reply, VERSION, WordOn, Words, readable, to_bytes};

/// Most messages taken in at once: they are in memory until the journal has them.
const BATCH: usize = 128;

/// A server that says nothing for twice as long is gone.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Agents of this hub, and why they do not get a message; nothing where they do.
type Outcome = (Vec<Name>, Option<String>);

/// What a batch holds, sorted.
#[derive(Default)]
struct Batch {
    letters: Vec<Passed>,
    verdicts: Vec<Verdict>,
}

/// Takes in what a consumer brings, until something fails.
pub(crate) async fn run(link: &Link, consumer: Consumer<pull::Config>) -> Result<Infallible, NatsError> {
    let action = "bring messages";
    let reading = consumer.stream().max_messages_per_batch(BATCH).heartbeat(HEARTBEAT).expires(HEARTBEAT * 6);
    let mut messages = reading.messages().await.map_err(NatsError::server(action))?.ready_chunks(BATCH);
    let mut outlet = Outlet::open(link).await?;
    while let Some(chunk) = messages.next().await {
        let chunk: Vec<Message> =
            chunk.into_iter().collect::<Result<_, _>>().map_err(NatsError::server(action))?;
        take_in(link, &mut outlet, &chunk).await?;
        for message in &chunk {
            message.ack().await.map_err(NatsError::server("take an acknowledgement"))?;
        }
    }
    Err(NatsError::Lost)
}

async fn take_in(link: &Link, outlet: &mut Outlet<()>, chunk: &[Message]) -> Result<(), NatsError> {
    // To groups this hub has written itself as well: of that there is nothing to look at.
    let own = token(&link.me);
    if chunk.iter().all(|message| link.subjects.writer(&message.subject) == Some(&own)) {
        return Ok(());
    }
    let batch = sort(link, chunk).await?;
    if !batch.verdicts.is_empty() {
        link.hub.judged(batch.verdicts).await?;
    }
    let told: Vec<_> = batch.letters.iter().map(|passed| origin(&passed.draft)).collect();
    let for_the_channel: Vec<bool> =
        batch.letters.iter().map(|passed| passed.draft.restored.is_some()).collect();
    let answers = link.hub.submit_passed(batch.letters).await;
    for (((id, hub, to), is_for_the_channel), answer) in told.into_iter().zip(for_the_channel).zip(answers) {
        let outcomes = outcome(link, id, &to, answer)?;
        if is_for_the_channel {
            // It is for nobody here of whom there would be something to say.
            continue;
        }
        for (agents, refused) in outcomes {
            let parcel = ParcelKind::Receipt;
            let reply = Reply { v: VERSION, parcel, hub: link.me.clone(), id, agents, refused };
            let word = if reply.refused.is_some() { "refused" } else { "taken" };
            // The same word of the same hub on the same message, however often it is said.
            let key = format!("{id}.{}.{word}", token(&link.me));
            while outlet.is_full() {
                outlet.land().await?;
            }
            let subject = link.subjects.receipt(&link.me, &hub);
            if outlet.send(subject, key, to_bytes(&reply), ()).await?.is_some() {
                tracing::warn!(message = %id, "a receipt is larger than NATS takes at once (max_payload)");
            }
        }
    }
    while outlet.land().await?.is_some() {}
    Ok(())
}

/// What the messages of a batch are, as far as they can be used.
async fn sort(link: &Link, chunk: &[Message]) -> Result<Batch, NatsError> {
    let directory = link.hub.directory().await?;
    let is_hub = |realm: &Name| directory.residents(realm).next().is_some();
    let own = token(&link.me);
    let mut batch = Batch::default();
    for message in chunk {
        let writer = link.subjects.writer(&message.subject).unwrap_or_default();
        if writer == own {
            continue;
        }
        let parcel = Parcel::parse(&message.payload).and_then(|parcel| {
            // The subject is what a server checks; what is inside must not claim more.
            if token(parcel.hub()) == writer {
                return Ok(parcel);
            }
            let problem = "names another hub than its subject".to_owned();
            Err(Malformed::Field { field: "hub", problem })
        });
        let sorted = parcel.and_then(|parcel| match parcel {
            Parcel::Letter(letter) => {
                let channel = letter.posted_in.clone();
                let passed = to_passed(*letter, &link.me, is_hub)?;
                batch.letters.extend(concerning(passed, channel.as_ref(), &directory));
                Ok(())
            }
            Parcel::Reply(reply) => {
                batch.verdicts.extend(verdicts(reply));
                Ok(())
            }
            Parcel::Words(words) => {
                batch.verdicts.extend(words_of(words));
                Ok(())
            }
        });
        if let Err(error) = sorted {
            tracing::warn!(subject = %message.subject, reason = %error, "a message from another hub was skipped");
        }
    }
    Ok(batch)
}

fn verdicts(reply: Reply) -> impl Iterator<Item = Verdict> {
    let Reply { hub, id, agents, refused, .. } = reply;
    let word = refused.map_or(Word::Taken, |reason| Word::Refused { reason });
    agents.into_iter().map(move |name| Verdict {
        id,
        agent: AgentId { name, realm: Some(hub.clone()) },
        word: word.clone(),
    })
}

fn words_of(words: Words) -> impl Iterator<Item = Verdict> {
    let Words { hub, said, .. } = words;
    readable(said).into_iter().map(move |WordOn { id, agent, became, note }| Verdict {
        id,
        agent: AgentId { name: agent, realm: Some(hub.clone()) },
        word: match became {
            Became::Seen => Word::Seen,
            Became::Acknowledged => Word::Acknowledged { note },
        },
    })
}

fn origin(draft: &switchboard_hub::Draft) -> (MessageId, Name, Address) {
    let hub = match &draft.route {
        Some(switchboard_core::Route::Hub { hub }) => hub.clone(),
        _ => Name::human(),
    };
    (draft.id, hub, draft.to.clone())
}

/// Whom a message reached here and whom not, and why. An error where it has to be brought again.
fn outcome(
    link: &Link,
    id: MessageId,
    to: &Address,
    answer: Result<Accepted, HubError>,
) -> Result<Vec<Outcome>, NatsError> {
    let refused = |reason: String| match to {
        Address::Agent(agent) => vec![(vec![agent.name.clone()], Some(format!("hub {}: {reason}", link.me)))],
        _ => Vec::new(),
    };
    match answer {
        Ok(accepted) => Ok(by_outcome(to, &accepted.deliveries)),
        // A group that nobody here belongs to is the concern of other hubs.
        Err(HubError::Unresolved(ResolveError::EmptyGroup { .. } | ResolveError::UnknownTeam { .. })) => {
            Ok(Vec::new())
        }
        Err(
            error @ (HubError::Unresolved(_)
            | HubError::BodyTooLarge { .. }
            | HubError::MetadataTooLarge { .. }),
        ) => {
            tracing::warn!(message = %id, reason = %error, "a message from another hub was refused");
            Ok(refused(error.to_string()))
        }
        Err(error @ (HubError::Conflict { .. } | HubError::DamagedMessage { .. })) => {
            tracing::warn!(message = %id, reason = %describe(&error), "a message from another hub was skipped");
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}

/// The agents who have it or will, and those who will not, by reason.
///
/// By the names that the other hub has for them: it knows nothing of whom the mail of an agent is forwarded to here.
fn by_outcome(to: &Address, deliveries: &[Delivery]) -> Vec<Outcome> {
    let is_refused = |d: &&Delivery| matches!(d.state, DeliveryState::Refused | DeliveryState::Expired);
    let name = |d: &Delivery| match to {
        Address::Agent(agent) => agent.name.clone(),
        _ => d.agent.name.clone(),
    };
    let names = |d: Vec<&Delivery>| d.into_iter().map(name).collect::<Vec<_>>();
    let (refused, taken): (Vec<_>, Vec<_>) = deliveries.iter().partition(is_refused);
    let reason = refused.first().map(|d| d.note.clone().unwrap_or_else(|| d.state.to_string()));
    let told = [(names(taken), None), (names(refused), reason)];
    told.into_iter().filter(|(names, _)| !names.is_empty()).collect()
}
