//! The shape of the workspace, held by tests.

use std::path::{Path, PathBuf};

use serde_json::Value;
use test_support::process::command;
use test_support::{files, tools};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The workspace's own packages: name, folder, names of dependencies of every kind.
fn packages() -> Vec<(String, PathBuf, Vec<String>)> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut metadata = command(cargo);
    for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        if let Some(value) = std::env::var_os(name) {
            metadata.env(name, value);
        }
    }
    metadata.current_dir(root()).args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&tools::run(&mut metadata).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let dependencies = package["dependencies"].as_array().unwrap();
            let dependencies = dependencies.iter().map(|dependency| text(&dependency["name"])).collect();
            (text(&package["name"]), manifest.parent().unwrap().to_owned(), dependencies)
        })
        .collect()
}

#[test]
fn no_door_depends_on_another() {
    let packages = packages();
    assert!(packages.iter().any(|(name, ..)| name.starts_with("door-")));
    for (name, _, dependencies) in packages.iter().filter(|(name, ..)| name.starts_with("door-")) {
        let doors: Vec<_> = dependencies.iter().filter(|name| name.starts_with("door-")).collect();
        assert!(doors.is_empty(), "{name} depends on {doors:?}");
    }
}

#[test]
fn nothing_below_the_doors_knows_them() {
    for (name, _, dependencies) in packages() {
        let rank = |name: &str| match name {
            "switchboard-core" => 0,
            "switchboard-sys" => 1,
            "switchboard-hub" => 2,
            _ if name.starts_with("door-") => 4,
            "switchboard" => 5,
            _ => 3,
        };
        let above = |other: &&String| {
            (other.starts_with("switchboard") || other.starts_with("door-")) && rank(other) > rank(&name)
        };
        let above: Vec<_> = dependencies.iter().filter(above).collect();
        assert!(above.is_empty() || rank(&name) == 3, "{name} depends on {above:?}");
    }
}

#[test]
fn the_core_does_no_io_and_has_no_clock() {
    let (_, folder, dependencies) =
        packages().into_iter().find(|(name, ..)| name == "switchboard-core").unwrap();
    for banned in ["tokio", "rusqlite", "rustix", "notify", "axum", "hyper", "reqwest", "tempfile"] {
        assert!(!dependencies.iter().any(|name| name == banned), "switchboard-core depends on {banned}");
    }
    let mut sources = 0;
    files::walk(&folder.join("src"), &mut |path| {
        let Ok(text) = std::fs::read_to_string(path) else { return };
        sources += 1;
        for banned in ["std::fs", "std::net", "SystemTime", "Instant", "Timestamp::now", "std::process"] {
            assert!(!text.contains(banned), "{} has {banned}", path.display());
        }
    });
    assert!(sources > 10);
}

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    for (name, folder, _) in packages() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{name}");
        assert_eq!(folder.file_name().unwrap().to_str(), Some(name.as_str()), "folder name = crate name");
    }
}

/// The repository stands alone: what lies beside it on one machine is not there on another.
#[test]
fn nothing_points_out_of_the_repository() {
    let outside = ["..", "shared"].join("/");
    let mut seen = 0;
    let mut look = |path: &Path| {
        if let Ok(text) = std::fs::read_to_string(path) {
            seen += 1;
            assert!(!text.contains(&outside), "{} mentions {outside}", path.display());
        }
    };
    for entry in std::fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if matches!(name.as_str(), ".git" | "target") {
            continue;
        }
        if path.is_dir() { files::walk(&path, &mut look) } else { look(&path) }
    }
    assert!(seen > 50);
}
