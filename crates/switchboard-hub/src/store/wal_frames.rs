//! Frames of the write-ahead log (WAL), verified as in SQLite's recovery: <https://sqlite.org/walformat.html>.
//!
//! SQLite itself trusts the index of the log and reads frames without verifying their checksums. It verifies them only
//! when it rebuilds the index, and truncates the log at the first invalid frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

/// Size of the log header in bytes.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Magic number of a log with little-endian checksums. The number for big-endian checksums is one higher.
const MAGIC: u32 = 0x377f_0682;

/// Salts of one run of the log, shared by its header and all its frames.
pub(super) type Salts = [u8; 8];

/// Length and modification time of a log, which reveal a change.
pub(super) type WalFingerprint = (u64, SystemTime);

/// Open file of the write-ahead log.
#[derive(Debug)]
pub(super) struct WalFile(File);

/// Verified header of the log.
struct Header {
    page: usize,
    salts: Salts,
    sum: Checksum,
}

/// Current run of a log: the frames since its last restart.
pub(super) struct Run<'l> {
    log: &'l WalFile,
    header: Header,
    fingerprint: WalFingerprint,
}

impl WalFile {
    pub(super) fn new(file: File) -> Self {
        Self(file)
    }

    /// Returns the length and the modification time of the log.
    pub(super) fn fingerprint(&self) -> io::Result<WalFingerprint> {
        let found = self.0.metadata()?;
        Ok((found.len(), found.modified()?))
    }

    pub(super) fn inode(&self) -> Option<u64> {
        self.0.metadata().ok().map(|found| found.ino())
    }

    /// Returns the current run, or `None` if the header of the log is damaged.
    pub(super) fn run(&self) -> io::Result<Option<Run<'_>>> {
        // The fingerprint is taken before the frames are read, so that the next call detects a change made meanwhile.
        let fingerprint = self.fingerprint()?;
        let header = unless_short(|| self.header())?;
        Ok(header.map(|header| Run { log: self, header, fingerprint }))
    }

    /// Returns true if the first `frames` frames are valid.
    ///
    /// SQLite's recovery then reaches the last of them.
    pub(super) fn verify(&self, frames: u64) -> io::Result<bool> {
        let found = unless_short(|| {
            let Some(Header { page, salts, mut sum }) = self.header()? else { return Ok(None) };
            let mut frame = vec![0; FRAME_HEADER + page];
            let mut offset = LOG_HEADER as u64;
            for _ in 0..frames {
                self.0.read_exact_at(&mut frame, offset)?;
                offset += frame.len() as u64;
                sum.add(&frame[..8]);
                sum.add(&frame[FRAME_HEADER..]);
                if frame[8..16] != salts || frame[16..FRAME_HEADER] != sum.to_bytes() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        });
        Ok(found?.is_some())
    }

    fn header(&self) -> io::Result<Option<Header>> {
        let mut bytes = [0; LOG_HEADER];
        self.0.read_exact_at(&mut bytes, 0)?;
        let magic = big_endian(&bytes[..4]);
        let page = big_endian(&bytes[8..12]) as usize;
        let mut sum = Checksum { is_big_endian: magic & 1 == 1, sums: [0; 2] };
        sum.add(&bytes[..24]);
        if magic & !1 != MAGIC || !(512..=65_536).contains(&page) || bytes[24..] != sum.to_bytes() {
            return Ok(None);
        }
        let mut salts = [0; 8];
        salts.copy_from_slice(&bytes[16..24]);
        Ok(Some(Header { page, salts, sum }))
    }
}

impl Run<'_> {
    pub(super) fn salts(&self) -> Salts {
        self.header.salts
    }

    /// Returns the fingerprint of the log from before this run was read.
    pub(super) fn fingerprint(&self) -> WalFingerprint {
        self.fingerprint
    }

    /// Returns true if a frame is complete and belongs to this run.
    pub(super) fn has_frame(&self, number: u64) -> io::Result<bool> {
        if self.fingerprint.0 < self.header.start_of(number + 1) {
            return Ok(false);
        }
        let found = unless_short(|| {
            let mut salts = [0; 8];
            self.log.0.read_exact_at(&mut salts, self.header.start_of(number) + 8)?;
            Ok((salts == self.header.salts).then_some(()))
        });
        Ok(found?.is_some())
    }
}

impl Header {
    /// Returns the offset of a frame. The first frame has number 1.
    fn start_of(&self, number: u64) -> u64 {
        LOG_HEADER as u64 + (number - 1) * (FRAME_HEADER + self.page) as u64
    }
}

/// Running checksum of a log.
struct Checksum {
    is_big_endian: bool,
    sums: [u32; 2],
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let [mut one, mut two] = self.sums;
        for pair in bytes.chunks_exact(8) {
            let (first, second) = (big_endian(&pair[..4]), big_endian(&pair[4..]));
            let in_order = |number: u32| if self.is_big_endian { number } else { number.swap_bytes() };
            one = one.wrapping_add(in_order(first)).wrapping_add(two);
            two = two.wrapping_add(in_order(second)).wrapping_add(one);
        }
        self.sums = [one, two];
    }

    fn to_bytes(&self) -> [u8; 8] {
        let [one, two] = self.sums;
        ((u64::from(one) << 32) | u64::from(two)).to_be_bytes()
    }
}

fn big_endian(four: &[u8]) -> u32 {
    four.iter().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

/// Runs a read, with the end of the file treated as a damaged frame (`None`).
fn unless_short<T>(read: impl FnOnce() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read() {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        found => found,
    }
}

#[cfg(test)]
#[path = "wal_frames_tests.rs"]
mod tests;
