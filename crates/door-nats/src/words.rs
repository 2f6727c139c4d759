//! What became of other hubs' messages after they were taken in: who was shown one, and who is done with it.
//!
//! The hub notes what is to be told in the transaction in which it happens, and what was told is struck out after the
//! server has it. Said again after a crash it is no news to the other hub, so it needs no id of its own.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use switchboard_core::Name;
use switchboard_hub::{ReceiptStatus, ReceiptUpdate};

use crate::error::NatsError;
use crate::link::Link;
use crate::outlet::Outlet;
use crate::wire::{Became, ParcelKind, VERSION, WordOn, Words, to_bytes};

/// Most that is told in one message: with the longest notes it fits into what a server takes at once.
const MOST: usize = 256;

/// How long to gather. Nobody waits for it, and a mailbox that is read is many words.
const GATHER: Duration = Duration::from_millis(200);

/// As much of a note is told.
const NOTE: usize = 500;

/// Tells other hubs what became of their messages, as it happens, until something fails.
pub(crate) async fn run(link: &Link) -> Result<Infallible, NatsError> {
    let mut changes = link.hub.changes();
    let mut outlet = Outlet::open(link).await?;
    loop {
        while tell(link, &mut outlet).await? {}
        changes.next().await;
        tokio::time::sleep(GATHER).await;
    }
}

/// Tells some of what is to be told; says whether there was anything.
async fn tell(link: &Link, outlet: &mut Outlet<()>) -> Result<bool, NatsError> {
    let owed = link.hub.pending_receipts(MOST).await?;
    if owed.is_empty() {
        return Ok(false);
    }
    let mut by_hub: BTreeMap<&Name, Vec<_>> = BTreeMap::new();
    for news in owed.iter().filter_map(|owed| owed.update.as_ref()) {
        if let Some(word) = word_on(news) {
            by_hub.entry(&news.hub).or_default().push(serde_json::to_value(word).unwrap_or_default());
        }
    }
    for (hub, said) in by_hub {
        let parcel = Words { v: VERSION, parcel: ParcelKind::Words, hub: link.me.clone(), said };
        let (subject, id) = (link.subjects.receipt(&link.me, hub), link.hub.next_id().to_string());
        if outlet.send(subject, id, to_bytes(&parcel), ()).await?.is_some() {
            tracing::warn!(%hub, "what became of its messages is more than NATS takes at once (max_payload)");
        }
    }
    while outlet.land().await?.is_some() {}
    link.hub.clear_receipts(owed).await?;
    Ok(true)
}

fn word_on(news: &ReceiptUpdate) -> Option<WordOn> {
    let (became, note) = match &news.status {
        ReceiptStatus::Seen => (Became::Seen, None),
        ReceiptStatus::Acknowledged { note } => (Became::Acknowledged, note.as_ref()),
        // That was said when the message came in.
        ReceiptStatus::Accepted | ReceiptStatus::Refused { .. } => return None,
    };
    let note = note.map(|note| note.chars().take(NOTE).collect());
    Some(WordOn { id: news.id, agent: news.agent.clone(), became, note })
}
