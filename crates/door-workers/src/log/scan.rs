//! Reading and repair of log segments.

use std::io::{BufRead, BufReader};

use serde::Deserialize;
use switchboard_sys::files::Dir;

use crate::error::RouterError;
use crate::wire::EventHead;

const PREFIX: &str = "events-";
const SUFFIX: &str = ".ndjson";

/// Length of the text before the sequence number in every line; constant, because the timestamp has a fixed length.
const BEFORE_SEQ: usize =
    r#"{"protocol":"codeswarm.router.v1","type":"event","timestamp":"2026-02-25T15:00:01.250Z","seq":"#.len();

/// Returns the file name of the segment that starts with this number.
pub(super) fn segment_name(first: u64) -> String {
    format!("{PREFIX}{first:020}{SUFFIX}")
}

/// Parses the number from a segment's file name; `None` for other files.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Parses the sequence number of a line; returns `None` for a line without a final newline.
pub(crate) fn seq_of(line: &[u8]) -> Option<u64> {
    if line.last() != Some(&b'\n') {
        return None;
    }
    let digits = line.get(BEFORE_SEQ..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Parses the job id of a line.
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

/// Repairs a segment after a crash: truncates it after its last complete line.
///
/// Returns the number of that line.
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

/// Visits every event of a segment.
pub(super) fn scan_segment(
    folder: &Dir,
    segment: u64,
    each: &mut impl FnMut(EventHead),
) -> Result<(), RouterError> {
    let failed = |source| RouterError::Log { folder: folder.path().to_owned(), action: "read", source };
    let mut reader = BufReader::new(folder.open_own(&segment_name(segment))?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        // Deltas are most of a log and do not change the state of an injection, so they are skipped.
        let is_piece = contains_early(&line, b"_delta\"");
        if !is_piece && let Ok(head) = serde_json::from_slice(&line) {
            each(head);
        }
        line.clear();
    }
    Ok(())
}

/// Returns true if the start of a line contains this text.
fn contains_early(line: &[u8], word: &[u8]) -> bool {
    let head = line.get(BEFORE_SEQ..).unwrap_or_default();
    head[..head.len().min(60)].windows(word.len()).any(|window| window == word)
}
