//! Identity of this hub among the linked hubs: its name and its home id.

use switchboard_core::{Door, Name};
use switchboard_hub::{Hub, LINK};
use switchboard_sys::platform;

use crate::config::Config;
use crate::error::NatsError;

/// Note key of the home id, which distinguishes this hub from every other hub.
const HOME: &str = "home";

/// Returns the hub's name: the configured name, or else the stored one, or else a generated one.
///
/// A generated name consists of the machine name and four hexadecimal digits, because one machine may run many hubs.
/// The name is stored in the hub, since other doors need it as well.
pub(crate) async fn resolve_name(hub: &Hub, config: &Config) -> Result<Name, NatsError> {
    let known = hub.relay().own_name().await?;
    let name = match (&config.hub, &known) {
        (Some(name), _) | (None, Some(name)) => name.clone(),
        (None, None) => generate_name(&platform::host_name(), hub.next_id().parts().1),
    };
    if known.as_ref().is_none_or(|known| known.as_str() != name.as_str()) {
        hub.relay().set_own_name(name.clone()).await?;
    }
    Ok(name)
}

/// Returns the home id, which is generated once and then stored.
///
/// The home id distinguishes this hub even from another hub with the same name.
pub(crate) async fn load_home_id(hub: &Hub) -> Result<String, NatsError> {
    let notes = hub.notes(Door::Nats).all(LINK).await?;
    if let Some((_, home)) = notes.into_iter().find(|(key, _)| key == HOME) {
        return Ok(home);
    }
    let home = hub.next_id().to_string();
    hub.notes(Door::Nats).put(LINK, HOME.to_owned(), Some(home.clone())).await?;
    Ok(home)
}

fn generate_name(machine: &str, random: u128) -> Name {
    let legal = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let first = machine.split('.').next().unwrap_or_default();
    let machine: String = first.chars().filter(legal).take(48).collect();
    let machine = if machine.is_empty() { "hub" } else { &machine };
    let name = format!("{machine}-{:04x}", (random >> 8) & 0xffff);
    // Letters, digits and dashes with a digit at the end always form a valid name.
    Name::parse(&name).unwrap_or_else(|_| Name::human())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_generated_from_any_machine() {
        assert_eq!(generate_name("build-7.example.org", 0x00ab_cd00).as_str(), "build-7-abcd");
        assert_eq!(generate_name("", 0).as_str(), "hub-0000");
        assert_eq!(generate_name("büro", 0x0000_0100).as_str(), "bro-0001");
    }
}
