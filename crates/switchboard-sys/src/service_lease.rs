//! Service lease: one long-running owner per hub and service, so that `serve` does not run twice.
//!
//! The lease is an operating system lock on a file, and ends with the process that holds it. A process that is only
//! stopped still holds its locks. Therefore a lease with a [`LeaseKey`] can be taken over with the same key: a new,
//! already locked file replaces the locked one. The former holder detects the takeover by
//! [`ServiceLease::is_in_force`].

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::{Dir, FileError};
use crate::process_identity::ProcessIdentity;

/// Length of a [`LeaseKey`]: 16 random bytes in base 16.
const KEY_DIGITS: usize = 32;

/// Maximum number of attempts to lock a file that other processes replace.
///
/// In each lost attempt, another process acquired the lease.
const ATTEMPTS: usize = 16;

/// Lease on a service. Released when dropped, and when the process ends.
#[derive(Debug)]
pub struct ServiceLease {
    file: File,
    folder: Dir,
    file_name: String,
}

impl ServiceLease {
    /// Returns true if no other process has taken the lease over.
    ///
    /// A lease whose file was only deleted stays in force until another process acquires the lease with a new file.
    pub fn is_in_force(&self) -> bool {
        self.folder.is_replaced(&self.file_name, &self.file).is_ok_and(|is_replaced| !is_replaced)
    }
}

/// Error of acquiring a [`ServiceLease`].
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another process holds the lease.
    #[error("{holder} already runs `{service}`")]
    Taken {
        /// The service.
        service: String,
        /// The process that holds the lease.
        holder: String,
    },
    /// The lock file cannot be opened or replaced.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Secret of the session that a lease belongs to.
///
/// The key stays the same, whichever process holds the lease for the session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LeaseKey(String);

/// Error of parsing a [`LeaseKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease key is {KEY_DIGITS} digits in base 16")]
pub struct ParseLeaseKeyError;

impl FromStr for LeaseKey {
    type Err = ParseLeaseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_key = text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| Self(text.to_owned())).ok_or(ParseLeaseKeyError)
    }
}

impl TryFrom<String> for LeaseKey {
    type Error = ParseLeaseKeyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<LeaseKey> for String {
    fn from(key: LeaseKey) -> Self {
        key.0
    }
}

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseKey(redacted)")
    }
}

impl LeaseKey {
    /// Returns the digest for the lock file, so that a process that reads the file does not learn the key.
    fn digest(&self, file_name: &str) -> String {
        let digest = Sha256::new().chain_update(file_name).chain_update([0]).chain_update(&self.0).finalize();
        digest.iter().fold(String::with_capacity(64), |text, byte| format!("{text}{byte:02x}"))
    }
}

/// Acquires the lease on `name`. Fails with the process that holds it.
///
/// With the key of the current holder, the lease is taken over.
pub fn acquire(folder: &Dir, name: &str, key: Option<&LeaseKey>) -> Result<ServiceLease, LeaseError> {
    let file_name = format!("hub.{name}");
    let digest = key.map(|key| key.digest(&file_name));
    for _ in 0..ATTEMPTS {
        let mut file = open(folder, &file_name)?;
        if file.try_lock().is_err() {
            let signature = Signature::read(&mut file);
            if digest.is_none() || signature.digest != digest {
                return Err(LeaseError::Taken { service: name.to_owned(), holder: signature.describe() });
            }
            let bytes = Signature { owner: Some(ProcessIdentity::this_process()), digest }.to_bytes();
            let file = folder.replace_locked(&file_name, &bytes)?;
            return Ok(ServiceLease { file, folder: folder.clone(), file_name });
        }
        // The signature serves only error messages and takeovers. The lock is what counts, and it also works on a full
        // disk.
        let _ = Signature { owner: Some(ProcessIdentity::this_process()), digest: digest.clone() }
            .write(&mut file);
        let service = ServiceLease { file, folder: folder.clone(), file_name: file_name.clone() };
        // Another process may have replaced the file since it was opened.
        if service.is_in_force() {
            return Ok(service);
        }
    }
    Err(LeaseError::Taken { service: name.to_owned(), holder: "another process".to_owned() })
}

/// Acquires a shared lease on `name`, which excludes exclusive leases.
///
/// Returns `None` while a process holds an exclusive lease.
pub fn acquire_shared(folder: &Dir, name: &str) -> Result<Option<ServiceLease>, LeaseError> {
    let file_name = format!("hub.{name}");
    for _ in 0..ATTEMPTS {
        let mut file = open(folder, &file_name)?;
        if file.try_lock_shared().is_err() {
            return Ok(None);
        }
        // The signature serves only error messages. The last of several holders signs.
        let _ = Signature { owner: Some(ProcessIdentity::this_process()), digest: None }.write(&mut file);
        let service = ServiceLease { file, folder: folder.clone(), file_name: file_name.clone() };
        if service.is_in_force() {
            return Ok(Some(service));
        }
    }
    Ok(None)
}

/// Opens the lock file of a service. On a read-only or full disk, an existing file suffices for locking.
fn open(folder: &Dir, name: &str) -> Result<File, LeaseError> {
    match folder.open_own(name) {
        Err(error) if error.is_disk() => folder.open_existing(name)?.ok_or_else(|| error.into()),
        opened => Ok(opened?),
    }
}

/// Returns the process that runs `name`, if any.
///
/// The query holds a lock for a moment, in which another process may fail to acquire the lease.
pub fn holder(folder: &Dir, name: &str) -> Result<Option<String>, LeaseError> {
    Ok(signature(folder, name)?.map(|signature| signature.describe()))
}

/// Returns true if a process runs `name` and is not stopped.
pub fn is_running(folder: &Dir, name: &str) -> Result<bool, LeaseError> {
    let is_stopped = |signature: Signature| signature.owner.is_some_and(|owner| owner.is_stopped());
    Ok(signature(folder, name)?.is_some_and(|signature| !is_stopped(signature)))
}

/// Reads the lock file if a process runs `name`. Returns `None` otherwise.
fn signature(folder: &Dir, name: &str) -> Result<Option<Signature>, LeaseError> {
    let Some(mut file) = folder.open_existing(&format!("hub.{name}"))? else { return Ok(None) };
    Ok(file.try_lock_shared().is_err().then(|| Signature::read(&mut file)))
}

/// Content of a lock file: the holder and the digest of the lease key.
///
/// The digest is on the next line, if there is a key.
#[derive(Debug, PartialEq, Eq)]
struct Signature {
    owner: Option<ProcessIdentity>,
    digest: Option<String>,
}

impl Signature {
    fn read(file: &mut File) -> Self {
        let mut text = String::new();
        let _ = file.read_to_string(&mut text);
        let mut lines = text.lines();
        let owner = lines.next().and_then(|line| line.parse().ok());
        Self { owner, digest: lines.next().map(str::to_owned) }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let owner = self.owner.as_ref().map(ToString::to_string);
        [owner.as_deref(), self.digest.as_deref()].into_iter().flatten().collect::<Vec<_>>().join("\n").into()
    }

    fn write(&self, file: &mut File) -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&self.to_bytes())
    }

    fn describe(&self) -> String {
        match &self.owner {
            Some(owner) => format!("process {} on {}", owner.pid(), owner.host()),
            None => "another process".to_owned(),
        }
    }
}

#[cfg(test)]
#[path = "service_lease_tests.rs"]
mod tests;
