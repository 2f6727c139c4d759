//! ACME client (RFC 8555): obtains, stores and renews the certificate.

mod challenges;
mod order;
mod store;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchboard_sys::clock::Clock;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use self::challenges::Challenges;
use self::store::Store;
use self::transport::Transport;
use crate::certificate::{Certificate, CurrentCertificate, LoadedCertificate};
use crate::error::Error;
use crate::host;
use crate::settings::Acme;

/// Maximum retry backoff.
///
/// At renewal time, the old certificate is still valid for another third of its lifetime, so retries are not urgent. A
/// server that has recovered should still be noticed on the same day.
const MAX_RETRY_DELAY: Duration = Duration::from_hours(6);

/// Interval at which the renewal time is checked. Machines suspend and clocks change, so one long sleep would miss that
/// time.
const CHECK_INTERVAL: Duration = Duration::from_mins(10);

/// Timeout of one attempt. Servers validate names from several locations, which takes a minute at most.
const ATTEMPT_TIMEOUT: Duration = Duration::from_mins(5);

/// Obtains the certificate and renews it before it expires.
pub(crate) struct Issuer {
    settings: Acme,
    store: Store,
    transport: Transport,
    challenges: Arc<Challenges>,
    clock: Clock,
}

impl Issuer {
    /// Checks the settings and opens the store. Makes no network request yet.
    pub(crate) fn prepare(mut settings: Acme, clock: Clock) -> Result<Self, Error> {
        if !settings.terms_agreed {
            return Err(Error::TermsNotAgreed { directory: settings.directory });
        }
        if !settings.directory.starts_with("https://") || reqwest::Url::parse(&settings.directory).is_err() {
            return Err(Error::BadDirectory { directory: settings.directory });
        }
        for name in &mut settings.names {
            if !host::is_host_name(name) {
                return Err(Error::BadName { name: name.clone() });
            }
            *name = host::canonical(name);
        }
        settings.names.sort_unstable();
        settings.names.dedup();
        if settings.names.is_empty() {
            return Err(Error::NoNames);
        }
        let store = Store::open(&settings)?;
        let transport = Transport::new(settings.ca_file.as_deref())?;
        Ok(Self { settings, store, transport, challenges: Arc::default(), clock })
    }

    /// Returns the pending challenges, which the listener answers.
    pub(crate) fn challenges(&self) -> Arc<Challenges> {
        Arc::clone(&self.challenges)
    }

    /// Returns the certificate of an earlier run if it has not expired.
    pub(crate) fn stored(&self) -> Result<Option<LoadedCertificate>, Error> {
        let stored = self.store.certificate()?;
        Ok(stored.filter(|loaded| self.clock.now() < loaded.certificate.not_after))
    }

    /// Obtains a certificate if there is none and renews it after two thirds of its lifetime, until `closing`.
    pub(crate) async fn run_renewal(self, current: Arc<CurrentCertificate>, closing: CancellationToken) {
        let renewal = async {
            let mut failures = 0;
            loop {
                let certificate = current.watch().borrow().clone();
                if let Some(certificate) = certificate {
                    self.wait_until(renewal_time(&certificate)).await;
                }
                match self.obtain_with_timeout().await {
                    Ok(loaded) => {
                        failures = 0;
                        let certificate = &loaded.certificate;
                        tracing::info!(names = ?certificate.names, until = %certificate.not_after, "a new certificate");
                        let is_due = renewal_time(certificate) <= self.clock.now();
                        current.show(loaded);
                        if is_due {
                            // Without this delay, a server with a wrong clock would be queried in a tight loop.
                            tracing::warn!(
                                "the new certificate is already due for renewal: check the system clock"
                            );
                            sleep(retry_delay(&self.settings, 1)).await;
                        }
                    }
                    Err(error) => {
                        failures += 1;
                        let retry_delay = retry_delay(&self.settings, failures);
                        log_failure(&error, retry_delay);
                        sleep(retry_delay).await;
                    }
                }
            }
        };
        tokio::select! {
            () = closing.cancelled() => {}
            () = renewal => {}
        }
    }

    async fn obtain_with_timeout(&self) -> Result<LoadedCertificate, Error> {
        let took_too_long = || self.failed(instant_acme::Error::Timeout(None));
        timeout(ATTEMPT_TIMEOUT, self.obtain()).await.unwrap_or_else(|_| Err(took_too_long()))
    }

    async fn wait_until(&self, moment: Timestamp) {
        loop {
            match Duration::try_from(moment.duration_since(self.clock.now())) {
                Ok(rest) if !rest.is_zero() => sleep(rest.min(CHECK_INTERVAL)).await,
                _ => return,
            }
        }
    }

    fn failed(&self, source: instant_acme::Error) -> Error {
        Error::Acme { directory: self.settings.directory.clone(), source: Box::new(source) }
    }
}

/// Returns the time at which a certificate is due for renewal: after two thirds of its lifetime, as public CAs advise.
fn renewal_time(certificate: &Certificate) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before);
    let two_thirds = SignedDuration::from_nanos_i128(life.as_nanos() * 2 / 3);
    certificate.not_before.checked_add(two_thirds).unwrap_or(certificate.not_after)
}

fn log_failure(error: &(dyn std::error::Error + 'static), retry_delay: Duration) {
    tracing::warn!(error, seconds = retry_delay.as_secs(), "cannot obtain a certificate by ACME; will retry");
}

/// Returns the exponential backoff after `failures` consecutive failures. Jitter keeps many hubs from retrying at the
/// same time.
fn retry_delay(settings: &Acme, failures: u32) -> Duration {
    let doubled = settings.first_retry.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    doubled.min(MAX_RETRY_DELAY).mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
#[path = "acme_tests.rs"]
mod tests;
