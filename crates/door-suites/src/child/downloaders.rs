//! List of package runners that may download a server before they run it.
//!
//! The time of such a download is unknown.

use std::path::Path;

/// Programs that run packages, images or sources which may have to be downloaded first.
///
/// Killing such a program during a download discards the download and may leave a broken package.
const RUNNERS: &[&str] = &[
    "bun", "bunx", "cargo", "deno", "dnx", "docker", "dotnet", "go", "jbang", "nix", "npm", "npx", "pipx",
    "pnpm", "pnpx", "podman", "uv", "uvx", "yarn",
];

/// Returns true if a program may download the server before it runs it.
pub(super) fn may_download(command: &str) -> bool {
    let program = Path::new(command).file_stem().and_then(|stem| stem.to_str());
    program.is_some_and(|program| RUNNERS.contains(&program))
}

#[cfg(test)]
mod tests {
    use super::may_download;

    #[test]
    fn runners_are_recognized_by_file_name() {
        for command in ["npx", "/usr/local/bin/uvx", "./docker", "npx.cmd"] {
            assert!(may_download(command), "{command}");
        }
        for command in ["node", "python3", "/opt/npx/server", "npx-like", ""] {
            assert!(!may_download(command), "{command}");
        }
    }
}
