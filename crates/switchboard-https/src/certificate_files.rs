//! Certificate from two files that another program renews.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchboard_sys::clock::Clock;
use switchboard_sys::files::FileError;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::certificate::{CurrentCertificate, LoadedCertificate, PemError, read_file};
use crate::error::Error;

const CERT: &str = "certificate";
const KEY: &str = "private key";

/// Remaining validity at which a warning is logged: renewals usually happen weeks before expiry.
const EXPIRY_WARNING: SignedDuration = SignedDuration::from_hours(24 * 7);

/// Paths of a certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Fingerprint of the two files, used to detect changes. Times are compared for equality only, never ordered.
type Fingerprint = [Option<(u64, u64, i64, i64, i64, i64)>; 2];

impl CertificateFiles {
    /// Reads both files.
    pub(crate) fn load(&self) -> Result<LoadedCertificate, Error> {
        check_permissions(&self.key)?;
        let (cert, key) = (read_file(CERT, &self.cert)?, read_file(KEY, &self.key)?);
        LoadedCertificate::from_pem("the certificate", &cert, &key).map_err(|error| match error {
            PemError::NoCertificate => {
                Error::BadPem { what: CERT, path: self.cert.clone(), expected: "certificate" }
            }
            PemError::NoKey => Error::BadPem { what: KEY, path: self.key.clone(), expected: "private key" },
            PemError::OtherKey => Error::OtherKey { cert: self.cert.clone(), key: self.key.clone() },
            PemError::Unusable(error) => error,
        })
    }

    /// Polls both files and reloads them after a change, until `closing`.
    ///
    /// An unusable certificate is logged once, and the previous certificate stays in use: one of the two files is
    /// always written first, so the pair may not match for a moment.
    pub(crate) async fn watch(
        self,
        current: Arc<CurrentCertificate>,
        every: Duration,
        clock: Clock,
        closing: CancellationToken,
    ) {
        // The files may have changed since they were loaded, so the first poll loads them again.
        let mut last = None;
        let mut poll = interval(every.max(Duration::from_millis(10)));
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                _ = poll.tick() => {}
            }
            let files = self.clone();
            let before = last;
            let reading = tokio::task::spawn_blocking(move || {
                // The fingerprint is taken before the files are read, so that a change during the read is detected at
                // the next poll.
                let fingerprint = files.fingerprint();
                (Some(fingerprint) != before).then(|| (fingerprint, files.load()))
            });
            match reading.await {
                Ok(None) => {}
                Ok(Some((fingerprint, loaded))) => {
                    last = Some(fingerprint);
                    self.apply(&current, loaded, clock.now());
                }
                Err(error) => tracing::error!(%error, "cannot check the certificate's files"),
            }
        }
    }

    fn apply(&self, current: &CurrentCertificate, loaded: Result<LoadedCertificate, Error>, now: Timestamp) {
        if let Ok(loaded) = &loaded
            && loaded.certificate.not_after < now + EXPIRY_WARNING
        {
            let until = loaded.certificate.not_after;
            tracing::warn!(cert = %self.cert.display(), %until, "the certificate has expired or expires soon");
        }
        match loaded {
            Ok(loaded) if current.watch().borrow().as_ref() == Some(&loaded.certificate) => {}
            Ok(loaded) => {
                tracing::info!(cert = %self.cert.display(), until = %loaded.certificate.not_after, "a new certificate");
                current.show(loaded);
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "the changed certificate is unusable; the previous one stays in use");
            }
        }
    }

    /// Returns the fingerprint of both files. Symbolic links are followed, because a renewal may change only their
    /// targets.
    fn fingerprint(&self) -> Fingerprint {
        [&self.cert, &self.key].map(|path| {
            let stat = std::fs::metadata(path).ok()?;
            Some((stat.dev(), stat.ino(), stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec()))
        })
    }
}

/// Rejects a key file that other users may read.
///
/// The group may read a key that root owns, because systems share keys with a few services in this way.
fn check_permissions(path: &Path) -> Result<(), Error> {
    let stat = match std::fs::metadata(path) {
        Ok(stat) => stat,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NoFile { what: KEY, path: path.to_owned() });
        }
        Err(source) => {
            return Err(FileError::Io { action: "examine", path: path.to_owned(), source }.into());
        }
    };
    let mode = stat.mode() & 0o777;
    let allowed = if stat.uid() == 0 { 0o740 } else { 0o700 };
    match mode & !allowed {
        0 => Ok(()),
        _ => Err(Error::OpenKey { path: path.to_owned(), mode }),
    }
}
