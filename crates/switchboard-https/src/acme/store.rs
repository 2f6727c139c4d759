//! The account and the certificate on disk, for their owner alone.

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

/// Far more than an account or a chain with its key has.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Nobody but the owner may read or write.
const FILE_MODE: u32 = 0o600;

/// A folder with the account and the certificate.
///
/// Names carry a mark of what the file is for. So an account at another server, or a certificate for other names, is
/// another file, and going back finds the old one.
pub(super) struct Store {
    dir: Dir,
    account: String,
    certificate: String,
}

/// An account as it is kept.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredAccount {
    /// Whom the server was told that it may write to.
    pub(super) contact: Vec<String>,
    /// The account's address and private key.
    pub(super) credentials: AccountCredentials,
}

impl Store {
    /// Opens the folder of the settings, and makes it when it is missing.
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

    /// The account that is kept. One that cannot be read counts as none: a new one costs nothing.
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

    /// The certificate that is kept. One that cannot be used counts as none.
    pub(super) fn certificate(&self) -> Result<Option<LoadedCertificate>, Error> {
        let Some(contents) = self.dir.read(&self.certificate, MAX_FILE_BYTES)? else { return Ok(None) };
        let loaded = load(&contents.bytes);
        if loaded.is_err() {
            tracing::warn!(file = %self.path(&self.certificate).display(), "cannot use the kept certificate");
        }
        Ok(loaded.ok())
    }

    /// Keeps a certificate with its key, in one file: whatever happens, the two belong together.
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

/// A short name for values of any length and content.
fn short_digest(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    let mut short_digest = String::new();
    for byte in digest.iter().take(8) {
        // Writing to a string does not fail.
        let _ = write!(short_digest, "{byte:02x}");
    }
    short_digest
}
