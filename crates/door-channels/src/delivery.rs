//! Delivery of the hub's messages as files of a channel.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Door, Message, MessageId, Name, Outcome, Route, error_chain};
use switchboard_hub::{Handoff, Outbound};
use switchboard_sys::files::{Created, Dir, Durability};

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::ids::PER_SECOND;
use crate::translate::{is_file_of, is_in_folder, name_of, set_hub, to_file};
use crate::tree::blocking;
use crate::wire::ChannelMessage;

/// Maximum number of deliveries per batch.
const BATCH: usize = 64;

/// Maximum time between the journal entry of a post and its file.
const POSTING: SignedDuration = SignedDuration::from_mins(1);

/// Delivers handoffs from the hub until the hub shuts down.
pub async fn run_deliveries(channels: &Channels, mut outbound: Outbound) {
    loop {
        let handoffs = outbound.next(BATCH).await;
        if handoffs.is_empty() {
            return;
        }
        deliver(channels, handoffs).await;
    }
}

async fn deliver(channels: &Channels, handoffs: Vec<Handoff>) {
    // A message to a channel is a single file, however many agents read it.
    let mut written: HashMap<(MessageId, Name), Outcome> = HashMap::new();
    let mut reports = Vec::with_capacity(handoffs.len());
    for handoff in handoffs {
        let outcome = match &handoff.delivery.route {
            Route::Channel { channel } => {
                let key = (handoff.message.id, channel.clone());
                if !written.contains_key(&key) {
                    let outcome = match channels.write_file(&handoff.message, handoff.seq, channel).await {
                        Ok(()) => Outcome::Delivered,
                        Err(error) => Outcome::Unreachable { reason: error_chain(&error) },
                    };
                    written.insert(key.clone(), outcome);
                }
                written[&key].clone()
            }
            other => Outcome::Refused { reason: format!("the channels door has no route '{other}'") },
        };
        reports.push((handoff, outcome));
    }
    for answer in Handoff::report_all(reports).await {
        if let Err(error) = answer {
            tracing::warn!(error = %error, "cannot save the outcome of a delivery");
        }
    }
}

impl Channels {
    /// Writes the file of a journaled message into a channel, unless the file exists.
    pub(crate) async fn write_file(
        &self,
        message: &Message,
        seq: i64,
        channel: &Name,
    ) -> Result<(), ChannelError> {
        if self.hub().native_ids().of_message(Door::Channels, channel.as_str(), message.id).await?.is_some() {
            return Ok(());
        }
        if is_own_post(message) {
            // The poster may have died after it wrote the file and before it recorded the file's name, so look for the
            // file.
            Box::pin(self.scan_channel(channel)).await?;
            if self
                .hub()
                .native_ids()
                .of_message(Door::Channels, channel.as_str(), message.id)
                .await?
                .is_some()
            {
                return Ok(());
            }
        }
        if self.folder().is_some_and(|folder| is_in_folder(message, folder)) && message.is_from_other_hub() {
            // The hub that accepted the message shares this folder and writes the file itself, so look for that file.
            Box::pin(self.scan_channel(channel)).await?;
            if self
                .hub()
                .native_ids()
                .of_message(Door::Channels, channel.as_str(), message.id)
                .await?
                .is_some()
            {
                return Ok(());
            }
            // After a while write the file anyway: a copy of the folder has the same identity, but the other hub does
            // not write into it.
            if self.hub().now().duration_since(message.sent_at).abs() < POSTING {
                return Err(ChannelError::FilePending { id: message.id });
            }
        }
        let reply_to = match message.in_reply_to {
            Some(parent) => self.find_native_id(channel, parent).await?,
            None => None,
        };
        let hub = message.origin_hub().or(self.own_name().await?);
        let (this, place, copy) = (self.clone(), channel.clone(), message.clone());
        let native = blocking(move || {
            let dir = this.tree().create_channel(&place)?;
            let file = |tries| {
                let mut file = to_file(&copy, seq, &place, reply_to.clone(), tries);
                set_hub(&mut file, hub.as_ref());
                file
            };
            create_file(&dir, &copy, file, this.config().file_limit)
        })
        .await?;
        self.record_name(channel, message.id, &native).await
    }

    /// Writes the missing files of posts whose process died after journaling; returns their number.
    ///
    /// Call it after a scan of all channels, which records the existing files.
    pub(crate) async fn repair(&self) -> Result<usize, ChannelError> {
        let before = self.hub().now().saturating_sub(POSTING).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut repaired = 0;
        for id in self.hub().native_ids().messages_without(Door::Channels, before).await? {
            let Some(stored) = self.hub().journal().message(id).await? else { continue };
            if let Some(Route::Channel { channel }) = &stored.message.origin.route {
                self.write_file(&stored.message, stored.seq, channel).await?;
                repaired += 1;
            }
        }
        Ok(repaired)
    }

    /// Returns a message's id in the channel, or else the hub's id.
    async fn find_native_id(&self, channel: &Name, id: MessageId) -> Result<Option<String>, ChannelError> {
        if let Some(stored) = self.hub().journal().message(id).await? {
            let native = stored.message.origin.native;
            if native.door == Door::Channels && native.scope.eq_ignore_ascii_case(channel.as_str()) {
                return Ok(Some(native.id));
            }
        }
        let named = self.hub().native_ids().of_message(Door::Channels, channel.as_str(), id).await?;
        // Readers of files cannot resolve an id of the hub, but `switchboard thread` can.
        Ok(Some(named.unwrap_or_else(|| id.to_string())))
    }
}

/// Returns true if a process of this hub posted the message, and therefore writes the file itself.
fn is_own_post(message: &Message) -> bool {
    let native = &message.origin.native;
    native.door == Door::Channels && native.scope.is_empty()
}

/// Creates the file under the first free name, or finds the existing file under a name that was tried.
fn create_file(
    dir: &Dir,
    message: &Message,
    file: impl Fn(u32) -> ChannelMessage,
    limit: u64,
) -> Result<String, ChannelError> {
    for tries in 0..PER_SECOND {
        let file = file(tries);
        let name = name_of(&file);
        if dir.create_new(&name, &file.to_bytes(), Durability::Synced)? == Created::Created {
            return Ok(file.id);
        }
        let existing = dir.read(&name, limit).ok().flatten();
        let existing = existing.and_then(|existing| ChannelMessage::parse(&existing.bytes).ok());
        if existing.is_some_and(|existing| is_file_of(&existing, message)) {
            return Ok(file.id);
        }
    }
    let problem = "cannot get a file name: all names of its second are taken".to_owned();
    Err(ChannelError::Field { field: "message", problem })
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
