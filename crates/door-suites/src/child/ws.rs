//! WebSocket transport with the subprotocol `mcp`: one message per text frame.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use switchboard_core::error_chain;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::connection::{Connection, EndKind};
use super::error::ChildError;
use super::net;
use super::shared::{LiveGuard, Shared};
use super::start::{open_session, within_spawn_limit};
use super::transport::{Full, Transport};
use crate::host::Caller;

/// Maximum number of queued messages; further messages are rejected as busy.
const QUEUE: usize = 256;

/// Maximum wait for the server to acknowledge the close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// WebSocket transport; holds the send queue.
pub(super) struct WsTransport(mpsc::Sender<Vec<u8>>);

impl WsTransport {
    /// Queues a message. If the socket is closed, the message is dropped, and the sender gets an error from the
    /// connection.
    pub(super) fn send(&self, body: Vec<u8>) -> Result<(), Full> {
        match self.0.try_send(body) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(Full),
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }
}

/// Connects to the server and opens a session.
pub(super) async fn start(
    shared: &Arc<Shared>,
    url: &str,
    headers: &BTreeMap<String, String>,
    caller: &Caller,
) -> Result<Arc<Connection>, ChildError> {
    let starting = async {
        let socket = connect(shared, url, headers).await?;
        let (queue, queued) = mpsc::channel(QUEUE);
        let connection = Connection::new(Arc::clone(shared), Transport::Ws(WsTransport(queue)), None);
        tokio::spawn(run(socket, queued, Arc::clone(&connection), shared.track()));
        open_session(connection, caller).await
    };
    within_spawn_limit(shared, Box::pin(starting)).await
}

async fn connect(
    shared: &Shared,
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<Socket, ChildError> {
    let url = net::check_url(shared, url, &["ws", "wss"])?;
    let hint = || format!("check `url` and `headers` in {}", shared.file().display());
    let failed = |cause: String| shared.cannot_start(cause, hint());
    let mut request = url.as_str().into_client_request().map_err(|error| failed(error_chain(&error)))?;
    request.headers_mut().extend(net::headers(shared, headers)?);
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mcp"));
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
    let addresses =
        net::resolve(host.trim_matches(['[', ']']), port).await.map_err(|error| failed(error.to_string()))?;
    let stream = TcpStream::connect(&*addresses).await.map_err(|error| failed(error.to_string()))?;
    // Disable Nagle's algorithm: messages are small and latency matters.
    let _ = stream.set_nodelay(true);
    let cap = Some(shared.options.message_cap);
    let config = WebSocketConfig::default().max_message_size(cap).max_frame_size(cap);
    // A redirect fails the handshake, so redirects are never followed.
    let (socket, _) = tokio_tungstenite::client_async_tls_with_config(request, stream, Some(config), None)
        .await
        .map_err(|error| failed(error_chain(&error)))?;
    Ok(socket)
}

/// Reads from and writes to the socket until either side closes it.
async fn run(
    mut socket: Socket,
    mut queued: mpsc::Receiver<Vec<u8>>,
    connection: Arc<Connection>,
    _living: LiveGuard,
) {
    let (cause, kind) = loop {
        tokio::select! {
            () = connection.ended() => {
                let _ = timeout(CLOSE_TIMEOUT, socket.close(None)).await;
                return;
            }
            Some(body) = queued.recv() => {
                let Ok(text) = String::from_utf8(body) else { continue };
                let sent = tokio::select! {
                    sent = socket.send(Message::text(text)) => sent,
                    () = connection.ended() => continue,
                };
                if let Err(error) = sent {
                    break (error_chain(&error), EndKind::Crash);
                }
            }
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    receive(&connection, text.as_bytes());
                }
                Some(Ok(Message::Binary(bytes))) => receive(&connection, &bytes),
                Some(Ok(_)) => {}
                Some(Err(error)) => break (error_chain(&error), EndKind::Fault),
                None => break ("it closed the connection".to_owned(), EndKind::Crash),
            },
        }
    };
    connection.end(cause, kind);
}

fn receive(connection: &Arc<Connection>, body: &[u8]) {
    if !connection.receive(body, None) {
        connection.shared.log.note([body]);
    }
}
