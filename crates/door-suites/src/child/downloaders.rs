//! Package runners that may download a server before they run it, for an unknown time.

use std::path::Path;

/// Programs that run packages, images or sources which may not be on this machine yet. Killing one during a download
/// would discard it and may leave a broken package.
const RUNNERS: &[&str] = &[
    "bun", "bunx", "cargo", "deno", "dnx", "docker", "dotnet", "go", "jbang", "nix", "npm", "npx", "pipx",
    "pnpm", "pnpx", "podman", "uv", "uvx", "yarn",
];

/// True if a program may download before it runs the server.
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
