//! The reaper of the tests: what `switchboard reap` is to the binary.

use std::os::fd::AsFd;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    switchboard_sys::reaper::run(control).await
}
