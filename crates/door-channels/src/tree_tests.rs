use switchboard_sys::files::FileError;

use super::*;
use crate::channels::{Channels, Post};
use crate::config::Config;
use crate::test_channels::{TestChannels, agent, name, write_carelessly};

fn post(text: &str) -> Post {
    Post::new(agent("codex"), name("general"), text)
}

#[tokio::test]
async fn unmounted_root_is_an_error() {
    let test = TestChannels::new(&[]).await;
    let shared = test.open_another(|config| config.shared = true).await;
    shared.post(post("before")).await.unwrap();
    test.unmount();
    let refused = [
        shared.post(post("lost")).await.map(drop),
        shared.read(&name("general"), None).await.map(drop),
        shared.scan().await.map(drop),
        shared.presence_entries().await.map(drop),
        Channels::open(shared.config().clone(), shared.hub().clone()).await.map(drop),
    ];
    for refused in refused {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, ChannelError::IdentityMismatch { has_identity: false, .. }), "{refused}");
        assert!(refused.is_unmounted());
    }
    assert_eq!(shared.hub().journal().newest(9).await.unwrap().items.len(), 1, "nothing is accepted");
    test.mount();
    shared.post(post("after")).await.unwrap();
    assert_eq!(test.texts().await, ["before", "after"]);
}

#[tokio::test]
async fn another_disk_counts_once_it_is_accepted() {
    let test = TestChannels::new(&[]).await;
    let shared = test.open_another(|config| config.shared = true).await;
    let identity = std::fs::read(test.path("signals/folder")).unwrap();
    test.unmount();
    let other = Tree::open(&test.path(""), true, None).unwrap();
    assert_ne!(other.identity().unwrap().as_bytes(), identity);
    let (config, hub) = (shared.config().clone(), shared.hub().clone());
    let refused = Channels::open(config.clone(), hub.clone()).await.map(drop).unwrap_err();
    assert!(matches!(refused, ChannelError::IdentityMismatch { has_identity: true, .. }), "{refused}");
    Channels::accept_root(&config, &hub).await.unwrap();
    let accepted = Channels::open(config, hub).await.unwrap();
    accepted.post(post("here")).await.unwrap();
    assert_eq!(accepted.read(&name("general"), None).await.unwrap().messages.len(), 1);
    assert!(shared.post(post("elsewhere")).await.unwrap_err().is_unmounted(), "that one knows the first");
}

#[tokio::test]
async fn root_that_is_not_there_is_an_error() {
    let test = TestChannels::new(&[]).await;
    let root = test.path("missing");
    let config = Config { shared: true, ..Config::new(&root) };
    let refused = Channels::open(config, test.channels.hub().clone()).await.map(drop).unwrap_err();
    let ChannelError::Root { path, source: FileError::Io { .. } } = &refused else { panic!("{refused}") };
    assert!(*path == root && !root.exists() && refused.is_unmounted());
}

#[tokio::test]
async fn root_without_identity_is_only_read() {
    let test = TestChannels::new(&[]).await;
    test.post("codex", "all", "before").await;
    // An identity cannot be created on a read-only disk, nor beside this file.
    write_carelessly(&test.path("signals"), b"");
    let shared = test.open_another(|config| config.shared = true).await;
    assert_eq!(shared.read(&name("general"), None).await.unwrap().messages.len(), 1);
    let is_unmarked = |error: &ChannelError| matches!(error, ChannelError::NoIdentity { .. });
    let refused = shared.post(post("lost")).await.unwrap_err();
    assert!(is_unmarked(&refused) && refused.is_unmounted(), "{refused}");
    test.unmount();
    assert!(is_unmarked(&shared.post(post("lost")).await.unwrap_err()));
    assert!(is_unmarked(&shared.tree().channels().unwrap_err()));
    assert!(is_unmarked(&shared.tree().presence().unwrap_err()));
    let (config, hub) = (shared.config().clone(), shared.hub().clone());
    let bare = Channels::open(config.clone(), hub.clone()).await.map(drop).unwrap_err();
    assert!(matches!(bare, ChannelError::IdentityMismatch { has_identity: false, .. }), "{bare}");
    assert_eq!(hub.journal().newest(9).await.unwrap().items.len(), 1, "nothing is accepted");
    test.mount();
    std::fs::remove_file(test.path("signals")).unwrap();
    Channels::open(config, hub).await.unwrap().post(post("after")).await.unwrap();
    assert_eq!(test.texts().await, ["before", "after"]);
}
