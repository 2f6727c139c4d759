//! Reading the files of the log.

use std::io::{BufRead, BufReader};

use serde::Deserialize;
use switchboard_sys::files::Dir;

use crate::error::RouterError;
use crate::wire::EventHead;

const PREFIX: &str = "events-";
const SUFFIX: &str = ".ndjson";

/// What stands before the number in every line; the time in it always has the same length.
const BEFORE_SEQ: usize =
    r#"{"protocol":"codeswarm.router.v1","type":"event","timestamp":"2026-02-25T15:00:01.250Z","seq":"#.len();

/// The name of the file that begins with this number.
pub(super) fn segment_name(first: u64) -> String {
    format!("{PREFIX}{first:020}{SUFFIX}")
}

/// The number that a file begins with; nothing where it is none of ours.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// The number of a line, which has to end with a newline to be one.
pub(crate) fn seq_of(line: &[u8]) -> Option<u64> {
    if line.last() != Some(&b'\n') {
        return None;
    }
    let digits = line.get(BEFORE_SEQ..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// The job that a line is about.
pub(super) fn job_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct About {
        data: Job,
    }
    #[derive(Deserialize)]
    struct Job {
        job_id: Option<String>,
    }
    serde_json::from_slice::<About>(line).ok()?.data.job_id
}

/// Takes away what a crash has left after the last whole line; returns the number of that line.
pub(super) fn repair_segment(folder: &Dir, first: u64) -> Result<Option<u64>, RouterError> {
    let failed = |source| RouterError::Log { folder: folder.path().to_owned(), action: "read", source };
    let file = folder.open_own(&segment_name(first))?;
    let mut reader = BufReader::new(&file);
    let (mut line, mut whole, mut last) = (Vec::new(), 0_u64, None);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(failed)?;
        let Some(seq) = seq_of(&line).filter(|_| read > 0) else { break };
        whole += read as u64;
        last = Some(seq);
    }
    file.set_len(whole).map_err(failed)?;
    Ok(last)
}

/// Looks at every line of a file.
pub(super) fn scan_segment(
    folder: &Dir,
    segment: u64,
    each: &mut impl FnMut(EventHead),
) -> Result<(), RouterError> {
    let failed = |source| RouterError::Log { folder: folder.path().to_owned(), action: "read", source };
    let mut reader = BufReader::new(folder.open_own(&segment_name(segment))?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        // Pieces of answers are most of a log, and say nothing about how far an injection is.
        let is_piece = contains_early(&line, b"_delta\"");
        if !is_piece && let Ok(head) = serde_json::from_slice(&line) {
            each(head);
        }
        line.clear();
    }
    Ok(())
}

/// Whether a line says early on that it is such an event.
fn contains_early(line: &[u8], word: &[u8]) -> bool {
    let head = line.get(BEFORE_SEQ..).unwrap_or_default();
    head[..head.len().min(60)].windows(word.len()).any(|window| window == word)
}
