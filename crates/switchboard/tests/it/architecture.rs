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
fn only_sys_watches_files() {
    let watching = packages()
        .into_iter()
        .filter(|(_, _, dependencies)| dependencies.iter().any(|name| name == "notify"));
    assert_eq!(watching.map(|(name, ..)| name).collect::<Vec<_>>(), ["switchboard-sys"]);
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

/// The Rust sources of all crates, tests included: path below the repository and text.
fn sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    files::walk(&root().join("crates"), &mut |path| {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            sources.push((name, std::fs::read_to_string(path).unwrap()));
        }
    });
    assert!(sources.len() > 500, "{} sources", sources.len());
    sources
}

/// The lines of all sources for which `is_bad` is true, each with its place.
fn lines_where(is_bad: impl Fn(&str) -> bool) -> Vec<String> {
    let mut bad = Vec::new();
    for (name, text) in sources() {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| is_bad(line)) {
            bad.push(format!("{name}:{}: {}", index + 1, line.trim()));
        }
    }
    bad
}

/// A comment names the process, peer, caller or agent that it is about: a reader cannot search for a pronoun.
#[test]
fn comments_name_who_acts() {
    let pronouns = ["whoever", "whomever", "nobody", "somebody", "anew"];
    let is_vague = |line: &str| {
        let line = line.trim_start().to_lowercase();
        line.starts_with("//")
            && line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| pronouns.contains(&word))
    };
    let vague = lines_where(is_vague);
    assert!(vague.is_empty(), "name who acts instead of {pronouns:?}:\n{}", vague.join("\n"));
}

/// A comment begins with its subject.
#[test]
fn comments_begin_with_their_subject() {
    let openings = ["What ", "Whoever ", "Whatever ", "That which "];
    let is_inverted = |line: &str| {
        let line = line.trim_start();
        let comment =
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).or_else(|| line.strip_prefix("//"));
        comment.is_some_and(|comment| {
            let comment = comment.trim_start();
            openings.iter().any(|opening| {
                comment.strip_prefix(opening).is_some_and(|rest| rest.starts_with(|c: char| c.is_lowercase()))
            })
        })
    };
    let inverted = lines_where(is_inverted);
    assert!(inverted.is_empty(), "begin with the subject, not with {openings:?}:\n{}", inverted.join("\n"));
}

/// Words that say nothing about a type. A type is named by the field's noun.
const NO_TYPE_NAMES: [&str; 32] = [
    "After",
    "Again",
    "Along",
    "Because",
    "Became",
    "Bell",
    "Beside",
    "Care",
    "Desk",
    "Doubt",
    "Ear",
    "Fate",
    "Happening",
    "Late",
    "Later",
    "Letter",
    "Other",
    "Parcel",
    "Passage",
    "Passing",
    "Patient",
    "Place",
    "Places",
    "Problem",
    "Seat",
    "Way",
    "Which",
    "Whole",
    "Whose",
    "Word",
    "WordOn",
    "Words",
];

#[test]
fn types_are_named_by_nouns_of_the_field() {
    let is_misnamed = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        matches!(words.next(), Some("struct" | "enum" | "trait" | "type"))
            && words.next().is_some_and(|name| {
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
                NO_TYPE_NAMES.contains(&&name[..end])
            })
    };
    let misnamed = lines_where(is_misnamed);
    assert!(misnamed.is_empty(), "take the field's noun:\n{}", misnamed.join("\n"));
}

/// A number without a reason cannot be changed by a later reader.
#[test]
fn every_limit_has_its_reason_beside_it() {
    let numbers = ["usize", "u8", "u16", "u32", "u64", "i32", "i64", "f64", "Duration", "SignedDuration"];
    let mut bare = Vec::new();
    for (name, text) in sources() {
        if name.contains("tests") || name.contains("test-support") || name.contains("crates/bench") {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        // Unit tests at the end of a file set their own limits.
        let end = lines.iter().position(|line| line.starts_with("mod tests {")).unwrap_or(lines.len());
        for (index, line) in lines[..end].iter().enumerate() {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            let is_number = words.next() == Some("const")
                && words.next().is_some_and(|name| name.ends_with(':'))
                && words.next().is_some_and(|kind| numbers.contains(&kind));
            // One comment may explain the constants of a block.
            let is_of_block = |line: &&&str| {
                let line = line.trim_start();
                line.starts_with("#[") || line.starts_with("const ") || line.starts_with("pub")
            };
            let above = lines[..index].iter().rev().find(|line| !is_of_block(line));
            if is_number && !above.is_some_and(|line| line.trim_start().starts_with("//")) {
                bare.push(format!("{name}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert!(bare.is_empty(), "say where the number comes from:\n{}", bare.join("\n"));
}
