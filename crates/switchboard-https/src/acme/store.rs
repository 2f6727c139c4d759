//! ACME account and certificate on disk, readable by their owner only.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use instant_acme::AccountCredentials;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use switchboard_sys::files::{Dir, FileError};

use crate::certificate::{LoadedCertificate, PemError};
use crate::error::Error;
use crate::settings::Acme;

/// Maximum file size, far more than an account, or a chain with its key, needs.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// File mode: only the owner may read or write.
const FILE_MODE: u32 = 0o600;

/// Folder with the account and the certificate.
///
/// File names contain a digest of the settings that the file belongs to. An account at another server, or a certificate
/// for other names, is therefore in another file, and reverting the settings finds the old file.
pub(super) struct Store {
    dir: Dir,
    account: String,
    certificate: String,
}

/// Account in its stored form.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredAccount {
    /// Contact URLs that the server knows.
    pub(super) contact: Vec<String>,
    /// URL and private key of the account.
    pub(super) credentials: AccountCredentials,
}

impl Store {
    /// Opens the folder from the settings, and creates it if it is missing.
    pub(super) fn open(settings: &Acme) -> Result<Self, Error> {
        let path = &settings.store;
        let failed = |source| FileError::Io { action: "make", path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let names = settings.names.join(",");
        Ok(Self {
            dir: Dir::open_root(path)?,
            account: format!("account-{}.json", short_digest(&[&settings.directory])),
            certificate: format!("certificate-{}.pem", short_digest(&[&settings.directory, &names])),
        })
    }

    /// Returns the stored account. An unreadable account counts as none, because a new account costs nothing.
    pub(super) fn account(&self) -> Result<Option<StoredAccount>, Error> {
        let Some(contents) = self.dir.read(&self.account, MAX_FILE_BYTES)? else { return Ok(None) };
        let read = serde_json::from_slice(&contents.bytes);
        if let Err(error) = &read {
            tracing::warn!(%error, file = %self.path(&self.account).display(), "cannot read the ACME account");
        }
        Ok(read.ok())
    }

    pub(super) fn save_account(&self, account: &StoredAccount) -> Result<(), Error> {
        let failed = |error: serde_json::Error| FileError::Io {
            action: "write",
            path: self.path(&self.account),
            source: error.into(),
        };
        let bytes = serde_json::to_vec_pretty(account).map_err(failed)?;
        Ok(self.dir.replace(&self.account, &bytes, FILE_MODE)?)
    }

    /// Returns the stored certificate. An unusable certificate counts as none.
    pub(super) fn certificate(&self) -> Result<Option<LoadedCertificate>, Error> {
        let Some(contents) = self.dir.read(&self.certificate, MAX_FILE_BYTES)? else { return Ok(None) };
        let loaded = load(&contents.bytes);
        if loaded.is_err() {
            tracing::warn!(file = %self.path(&self.certificate).display(), "cannot use the stored certificate");
        }
        Ok(loaded.ok())
    }

    /// Writes a certificate and its key to one file, so that a crash cannot separate them.
    pub(super) fn save_certificate(&self, key: &str, chain: &str) -> Result<LoadedCertificate, Error> {
        let both = format!("{}\n{}\n", key.trim_end(), chain.trim_end());
        let path = || self.path(&self.certificate);
        let loaded = load(both.as_bytes()).map_err(|error| match error {
            PemError::Unusable(error) => error,
            PemError::OtherKey => Error::OtherKey { cert: path(), key: path() },
            PemError::NoCertificate | PemError::NoKey => {
                Error::BadPem { what: "the ACME server's answer", path: path(), expected: "certificate" }
            }
        })?;
        self.dir.replace(&self.certificate, both.as_bytes(), FILE_MODE)?;
        Ok(loaded)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn load(both: &[u8]) -> Result<LoadedCertificate, PemError> {
    LoadedCertificate::from_pem("the certificate by ACME", both, both)
}

/// Returns a short digest of values of any length and content, for file names.
fn short_digest(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    let mut short_digest = String::new();
    for byte in digest.iter().take(8) {
        // Writing to a string cannot fail.
        let _ = write!(short_digest, "{byte:02x}");
    }
    short_digest
}
