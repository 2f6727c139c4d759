//! HTTPS transport to the ACME server.
//!
//! The owner configured the server, so there is no SSRF check. Certificates are verified as for all other calls.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};

use crate::error::Error;
use crate::trust;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a response: a certificate chain has a few KiB.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Adapter from `reqwest` to the client trait of `instant_acme`.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    http: reqwest::Client,
}

impl Transport {
    pub(super) fn new(ca_file: Option<&Path>) -> Result<Self, Error> {
        let tls = trust::client_config(ca_file, &[] as &[PathBuf])?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(Error::NoClient)?;
        Ok(Self { http })
    }
}

impl HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let http = self.http.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
            let request = http.request(head.method, head.uri.to_string()).headers(head.headers).body(body);
            let mut answer = request.send().await.map_err(to_acme_error)?;
            let mut body = BytesMut::new();
            while let Some(piece) = answer.chunk().await.map_err(to_acme_error)? {
                if body.len() + piece.len() > MAX_RESPONSE_BYTES {
                    return Err(instant_acme::Error::Str("an answer that is not too large"));
                }
                body.extend_from_slice(&piece);
            }
            let mut response = Response::new(());
            *response.status_mut() = answer.status();
            *response.headers_mut() = std::mem::take(answer.headers_mut());
            let (parts, ()) = response.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body.freeze()) })
        })
    }
}

fn to_acme_error(error: reqwest::Error) -> instant_acme::Error {
    instant_acme::Error::Other(Box::new(error))
}
