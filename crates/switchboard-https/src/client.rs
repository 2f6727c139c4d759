//! Egress client for `https` URLs from untrusted sources, with SSRF protection.
//!
//! The author of a URL must not be able to make this process talk to machines of the internal network. A name is
//! therefore resolved once per connection, each of its addresses is checked ([`egress`]), and the connection goes to a
//! checked address. Redirects are not followed, proxies from the environment are not used, and responses are bounded.

mod egress;
mod permits;
mod resolver;

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod test_server;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::Url;
use tokio::time::timeout;

use self::egress::EgressPolicy;
use self::permits::CallPermits;
use self::resolver::{Lookup, ResolveError, Resolver};
use crate::error::Error;
use crate::settings::{ClientSettings, Limits};
use crate::trust;

/// How long an idle connection stays in the pool. This is less than the 30 s after which our own listener closes idle
/// connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of idle connections per host. Calls come in bursts of a few.
const POOL_IDLE_PER_HOST: usize = 4;

/// Interval and timeout of HTTP/2 keep-alive pings.
///
/// Without pings, calls would use a dead connection until TCP gives up after a quarter of an hour.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Client for untrusted URLs. Clones share connections and limits.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    egress: Arc<EgressPolicy>,
    permits: Arc<CallPermits>,
}

/// Response of the server, with any status.
#[derive(Debug, Clone)]
pub struct Response {
    /// HTTP status. Redirects are returned and not followed.
    pub status: StatusCode,
    /// HTTP version of the connection.
    pub version: Version,
    /// Response headers.
    pub headers: HeaderMap,
    /// Complete body.
    pub body: Bytes,
    /// The server's clock, from the `Date` header if that is valid.
    pub date: Option<Timestamp>,
}

impl Client {
    /// Creates a client. Reads the CA and CRL files of the settings.
    pub fn new(settings: ClientSettings) -> Result<Self, Error> {
        Self::with_lookup(settings, Lookup::System)
    }

    fn with_lookup(settings: ClientSettings, lookup: Lookup) -> Result<Self, Error> {
        let egress = Arc::new(EgressPolicy::new(&settings.allow)?);
        let tls = trust::client_config(settings.ca_file.as_deref(), &settings.crl_files)?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Resolver::new(Arc::clone(&egress), lookup))
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // Other crates may enable decompression in `reqwest`, but a small response must not be decompressed into a
            // large one here.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .referer(false)
            .user_agent(concat!("switchboard/", env!("CARGO_PKG_VERSION")))
            .tcp_nodelay(true)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(POOL_IDLE_PER_HOST)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build()
            .map_err(Error::NoClient)?;
        Ok(Self {
            http,
            egress,
            permits: Arc::new(CallPermits::new(settings.calls, settings.calls_per_host)),
        })
    }

    /// Sends a GET request.
    pub async fn get(&self, url: &Url, headers: HeaderMap, limits: Limits) -> Result<Response, Error> {
        self.call(Method::GET, url, headers, Bytes::new(), limits).await
    }

    /// Sends JSON in a POST request.
    pub async fn post_json(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
        limits: Limits,
    ) -> Result<Response, Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.call(Method::POST, url, headers, body, limits).await
    }

    async fn call(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        limits: Limits,
    ) -> Result<Response, Error> {
        let host = self.egress.check_url(url)?;
        let call = async {
            let _permit = self.permits.acquire(&host).await;
            let request = self.http.request(method, url.clone()).headers(headers).body(body);
            let response = request.send().await.map_err(|error| call_error(&host, error))?;
            read_response(&host, response, limits.body).await
        };
        match timeout(limits.time, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::TimedOut { host: host.clone(), limit: limits.time }),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// Reads a response to its end. Fails if the body has more than `limit` bytes.
async fn read_response(host: &str, mut response: reqwest::Response, limit: usize) -> Result<Response, Error> {
    let too_large = || Error::TooLarge { host: host.to_owned(), limit };
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|error| call_error(host, error))? {
        if body.len() + piece.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    let headers = std::mem::take(response.headers_mut());
    Ok(Response {
        status: response.status(),
        version: response.version(),
        date: parse_date(&headers),
        headers,
        body: body.freeze(),
    })
}

/// Parses the `Date` header. An invalid header counts as none.
fn parse_date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
}

/// Converts an error of `reqwest`, which may wrap an error of [`Resolver`].
fn call_error(host: &str, error: reqwest::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(refused) = current.downcast_ref::<ResolveError>() {
            return refused.to_error(host);
        }
        cause = current.source();
    }
    // The query of the URL may contain a secret, and errors are logged.
    Error::Failed { host: host.to_owned(), source: error.without_url() }
}
