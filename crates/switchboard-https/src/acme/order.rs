//! One ACME order, from the account to the certificate.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::Issuer;
use super::store::StoredAccount;
use crate::certificate::LoadedCertificate;
use crate::error::Error;
use crate::settings::Challenge;

/// Poll interval and timeout for the state of an order.
const POLL_POLICY: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(Duration::from_mins(2));

/// Error type for an account that the server deleted or never had.
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

impl Issuer {
    /// Obtains a certificate and stores it.
    pub(super) async fn obtain(&self) -> Result<LoadedCertificate, Error> {
        let mut order = self.order().await?;
        let proven = self.prove_control(&mut order).await;
        self.challenges.clear();
        proven?;

        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(self.settings.names.clone())?;
        // The names are in the subject alternative name extension, and the server sets all other fields.
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        order.finalize_csr(request.der()).await.map_err(|error| self.failed(error))?;
        let chain = order.poll_certificate(&POLL_POLICY).await.map_err(|error| self.failed(error))?;
        self.store.save_certificate(&key.serialize_pem(), &chain)
    }

    /// Creates the order with the stored account, or with a new account if the server does not know the stored one.
    async fn order(&self) -> Result<Order, Error> {
        let names: Vec<_> = self.settings.names.iter().cloned().map(Identifier::Dns).collect();
        let order = NewOrder::new(&names);
        if let Some(account) = self.load_account().await? {
            match account.new_order(&order).await {
                Err(instant_acme::Error::Api(problem)) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
                    tracing::warn!("the ACME server does not know the account; creating a new one");
                }
                placed => return placed.map_err(|error| self.failed(error)),
            }
        }
        let placed = self.new_account().await?.new_order(&order).await;
        placed.map_err(|error| self.failed(error))
    }

    async fn load_account(&self) -> Result<Option<Account>, Error> {
        let Some(StoredAccount { contact, credentials }) = self.store.account()? else { return Ok(None) };
        let again = serde_json::to_value(&credentials).and_then(serde_json::from_value);
        let builder = Account::builder_with_http(Box::new(self.transport.clone()));
        let account = builder.from_credentials(credentials).await.map_err(|error| self.failed(error))?;
        if contact != self.settings.contact
            && let Ok(credentials) = again
        {
            account.update_contacts(&self.contact()).await.map_err(|error| self.failed(error))?;
            self.store
                .save_account(&StoredAccount { contact: self.settings.contact.clone(), credentials })?;
        }
        Ok(Some(account))
    }

    async fn new_account(&self) -> Result<Account, Error> {
        let contact = self.contact();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: self.settings.terms_agreed,
            only_return_existing: false,
        };
        let builder = Account::builder_with_http(Box::new(self.transport.clone()));
        let made = builder.create(&wanted, self.settings.directory.clone(), None).await;
        let (account, credentials) = made.map_err(|error| self.failed(error))?;
        self.store.save_account(&StoredAccount { contact: self.settings.contact.clone(), credentials })?;
        Ok(account)
    }

    fn contact(&self) -> Vec<&str> {
        self.settings.contact.iter().map(String::as_str).collect()
    }

    /// Completes the challenges that prove control of all names.
    async fn prove_control(&self, order: &mut Order) -> Result<(), Error> {
        let (kind, kind_name) = match self.settings.challenge {
            Challenge::TlsAlpn => (ChallengeType::TlsAlpn01, "TLS-ALPN-01"),
            Challenge::Http { .. } => (ChallengeType::Http01, "HTTP-01"),
        };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| self.failed(error))?;
            // The server caches authorizations of recent orders.
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = authorization.identifier().to_string();
            let Some(mut challenge) = authorization.challenge(kind.clone()) else {
                return Err(Error::NoChallenge { name, challenge: kind_name });
            };
            let proof = challenge.key_authorization();
            match self.settings.challenge {
                Challenge::TlsAlpn => {
                    self.challenges.add_certificate(&name, proof.digest().as_ref())?;
                }
                Challenge::Http { .. } => self.challenges.add_http_answer(&challenge.token, proof.as_str()),
            }
            challenge.set_ready().await.map_err(|error| self.failed(error))?;
        }
        match order.poll_ready(&POLL_POLICY).await.map_err(|error| self.failed(error))? {
            OrderStatus::Ready => Ok(()),
            _ => Err(self.validation_error(order).await),
        }
    }

    /// Returns the validation error that the server reports.
    async fn validation_error(&self, order: &mut Order) -> Error {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let Ok(mut authorization) = authorization else { continue };
            let name = authorization.identifier().to_string();
            let Ok(state) = authorization.refresh().await else { continue };
            if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
                let reason = problem.detail.clone().or_else(|| problem.r#type.clone()).unwrap_or_default();
                return Error::NotOurs { name, reason };
            }
        }
        Error::NotOurs {
            name: self.settings.names.join(", "),
            reason: "the server gave no reason".to_owned(),
        }
    }
}
