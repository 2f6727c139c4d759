//! Has the linker put the functions that run in every agent's session side by side.
//!
//! They are about a fifth of the program, and strewn over it they would have the system hold most of the rest in
//! memory too. `tools/hot-functions.py` writes the list. A name on it that no longer exists costs memory, never
//! correctness.

use std::env;

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
        let list = concat!(env!("CARGO_MANIFEST_DIR"), "/hot-functions.txt");
        println!("cargo::rustc-link-arg-bin=switchboard=-Wl,--symbol-ordering-file={list}");
        println!("cargo::rustc-link-arg-bin=switchboard=-Wl,--no-warn-symbol-ordering");
    }
}
