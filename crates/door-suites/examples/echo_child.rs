//! Minimal child for latency benchmarks: answers each line immediately.

use std::io::{self, BufRead as _, Write as _};

fn main() -> io::Result<()> {
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let mut line = String::new();
    while stdin.read_line(&mut line)? > 0 {
        // Requests start with their id; notifications have none.
        if let Some(rest) = line.strip_prefix(r#"{"jsonrpc":"2.0","id":"#) {
            let id: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let result = if rest.contains(r#""method":"initialize""#) {
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#
            } else {
                r#"{"content":[{"type":"text","text":"echo"}]}"#
            };
            writeln!(stdout, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)?;
            stdout.flush()?;
        }
        line.clear();
    }
    Ok(())
}
