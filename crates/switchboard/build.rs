//! Has the linker make a program that takes little memory, for there is one in every agent's session.
//!
//! The functions that run in all of them come side by side. They are about a fifth of the program, and strewn over it
//! they would have the system hold most of the rest in memory too. `tools/hot-functions.py` writes the list. A name on
//! it that no longer exists costs memory, never correctness.
//!
//! Some functions get a number behind their name while the program is put together, which depends even on the folder
//! that it is made in. On the list they end with a `*`, and get sections of their own, for only there it means anything.
//!
//! The list of addresses that are set at the start, a megabyte and a half, is packed where the C library can read that.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() {
    println!("cargo::rerun-if-changed=hot-functions.txt");
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    // Where Rust links with its own lld unless somebody says otherwise; other linkers do not know the option.
    let is_lld = is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && !env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if is_lld && is("PROFILE", "release") {
        // Asked for when this runs: checkouts that share a build folder share this program as well.
        let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
        if let Err(error) = put_side_by_side(&folder.join("hot-functions.txt")) {
            println!(
                "cargo::warning=the program will take more memory than it could: hot-functions.txt: {error}"
            );
        }
        if reads_packed_addresses() {
            println!("cargo::rustc-link-arg-bin=switchboard=-Wl,-z,pack-relative-relocs");
        }
    }
}

/// The heading on the list above what runs before a session waits for its first call.
const AT_THE_START: &str = "# at the start";

/// Has the functions of the list come first, those with a number behind their name in front of the others.
///
/// What runs at the start is in the middle of that: with its numbers before, without them behind, and the rest around it.
#[expect(
    clippy::disallowed_methods,
    reason = "runs while the program is made, where nothing of ours is there to use"
)]
fn put_side_by_side(list: &Path) -> io::Result<()> {
    let (mut at_start, mut later, mut is_start) = (String::new(), String::new(), false);
    for line in fs::read_to_string(list)?.lines() {
        if line.starts_with('#') {
            is_start = line == AT_THE_START;
        } else if line.ends_with('*') {
            let patterns = if is_start { &mut at_start } else { &mut later };
            // What the compiler takes for seldom needed has a prefix.
            patterns.extend([" .text.", line, " .text.unlikely.", line, "\n"]);
        }
    }
    let script = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("hot-functions.ld");
    let sections = format!(
        "SECTIONS {{ .text.later : {{ *(\n{later} ) }} .text.start : {{ *(\n{at_start} ) }} }} INSERT BEFORE .text;\n"
    );
    fs::write(&script, sections)?;
    let options = [
        format!("--symbol-ordering-file={}", list.display()),
        "--no-warn-symbol-ordering".to_owned(),
        format!("--script={}", script.display()),
    ];
    for option in options {
        println!("cargo::rustc-link-arg-bin=switchboard=-Wl,{option}");
    }
    Ok(())
}

/// Whether this machine, for which the program is then made, has a C library from 2.36 on. An older one would not start it.
#[expect(
    clippy::disallowed_methods,
    reason = "runs while the program is made, where nothing of ours is there to use"
)]
fn reads_packed_addresses() -> bool {
    if env::var_os("HOST") != env::var_os("TARGET") {
        return false;
    }
    let Ok(answer) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let answer = String::from_utf8_lossy(&answer.stdout);
    let version = answer.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    let number = |text: &str| text.parse::<u32>().ok();
    version
        .and_then(|(major, minor)| Some((number(major)?, number(minor)?)))
        .is_some_and(|version| version >= (2, 36))
}
