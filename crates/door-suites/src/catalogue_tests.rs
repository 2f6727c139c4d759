use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use switchboard_core::json::to_raw;

use super::{Catalogue, CatalogueStore};
use crate::child::Listing;
use crate::paths::SuitePaths;
use crate::spec::{ChildSpec, Expose, Framing, Launch, LaunchTemplate, Limits};

fn spec(command: &str) -> ChildSpec {
    ChildSpec {
        name: "notes".to_owned(),
        description: None,
        switchboard_description: None,
        file: "/x/.mcp.json".into(),
        launch: Launch::Stdio {
            command: command.to_owned(),
            args: vec!["a".to_owned()],
            env: BTreeMap::from([("KEY".to_owned(), "hunter2".to_owned())]),
            cwd: "/x".into(),
            framing: Framing::Auto,
        },
        unready: None,
        limits: Limits::default(),
        expose: Expose::Suite,
        template: LaunchTemplate::default(),
    }
}

fn catalogue() -> Catalogue {
    let tools = [
        json!({ "name": "add", "description": "first", "x-kept": [1.0] }),
        json!({ "name": "add", "description": "second" }),
        json!({ "name": "../up" }),
        json!({ "nameless": true }),
        json!({ "name": "odd", "annotations": "none" }),
    ];
    let listing = Listing { items: tools.iter().map(to_raw).collect(), is_cut: true };
    Catalogue::new(listing, Some("Notes.".to_owned()), Timestamp::UNIX_EPOCH)
}

#[test]
fn catalogue_loads_only_for_same_launch() {
    let folder = tempfile::tempdir().unwrap();
    let paths = SuitePaths {
        workspace: folder.path().into(),
        config: "/none".into(),
        cache: folder.path().join("cache"),
    };
    let shelf = CatalogueStore::open(&paths);
    assert!(shelf.load(&spec("one")).is_none());
    shelf.save(&spec("one"), &catalogue());
    let back = shelf.load(&spec("one")).unwrap();
    assert_eq!(back.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["add", "odd"]);
    assert_eq!(back.get("add").unwrap().raw.get(), r#"{"description":"first","name":"add","x-kept":[1.0]}"#);
    assert_eq!((back.instructions.as_deref(), back.taken_at), (Some("Notes."), Timestamp::UNIX_EPOCH));
    let note = back.truncation_note("notes").unwrap();
    assert_eq!(note, "notes lists too many tools; only the first 2 can be used");
    assert!(shelf.load(&spec("two")).is_none(), "another command may have other tools");

    let file = paths.cache.join("catalogues").join(paths.workspace_hash()).join("notes.json");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("hunter2"));
    for damage in ["", "{", "[]", "\u{0}"] {
        crate::test_files::write(&file, damage);
        assert!(shelf.load(&spec("one")).is_none(), "{damage:?}");
    }
}

#[test]
fn missing_cache_folder_is_tolerated() {
    let folder = tempfile::tempdir().unwrap();
    crate::test_files::write(&folder.path().join("file"), "");
    let cache = folder.path().join("file/cache");
    let shelf =
        CatalogueStore::open(&SuitePaths { workspace: folder.path().into(), config: "/none".into(), cache });
    shelf.save(&spec("one"), &catalogue());
    assert!(shelf.load(&spec("one")).is_none());
}
