//! QUIC streams that bound the memory of the HTTP/3 library.
//!
//! h3 buffers each frame other than DATA completely before parsing, whatever length the frame declares, so a client
//! could make h3 buffer gigabytes. These streams wrap the transport and fail when h3 buffers more than a request header
//! may have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream,
    StreamErrorIncoming, StreamId, WriteBuf,
};
use parking_lot::Mutex;

/// Bytes that h3 may buffer beyond a request header: one read of the transport, and frame headers.
const OVERHEAD: usize = 64 * 1024;

/// Counter of the bytes that h3 buffers for one stream.
#[derive(Debug)]
pub(super) struct Meter {
    held: AtomicUsize,
    limit: usize,
}

/// Meters of the streams of a connection.
#[derive(Debug, Clone)]
pub(super) struct Meters {
    /// Meters by stream. Each open stream has an entry, and a closed stream may keep its entry for a while.
    of_streams: Arc<Mutex<HashMap<StreamId, Weak<Meter>>>>,
    limit: usize,
}

impl Meter {
    /// Subtracts bytes that h3 has returned as part of a body.
    pub(super) fn release(&self, bytes: usize) {
        // The subtraction saturates, so that a wrong sum cannot underflow to a huge one.
        let _ = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(bytes)));
    }

    /// Adds bytes that h3 has received. Fails above the limit.
    fn charge(&self, bytes: usize) -> Result<(), StreamErrorIncoming> {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > self.limit {
            return Err(StreamErrorIncoming::StreamTerminated {
                error_code: Code::H3_EXCESSIVE_LOAD.value(),
            });
        }
        Ok(())
    }
}

impl Meters {
    pub(super) fn new(head: usize) -> Self {
        Self { of_streams: Arc::default(), limit: head + OVERHEAD }
    }

    /// Returns the meter of a stream.
    pub(super) fn for_stream(&self, stream: StreamId) -> Arc<Meter> {
        let mut of_streams = self.of_streams.lock();
        if let Some(meter) = of_streams.get(&stream).and_then(Weak::upgrade) {
            return meter;
        }
        // The transport limits the number of open streams, so this sweep is rare and short.
        if of_streams.len() >= 256 {
            of_streams.retain(|_, meter| meter.strong_count() > 0);
        }
        let meter = Arc::new(Meter { held: AtomicUsize::new(0), limit: self.limit });
        of_streams.insert(stream, Arc::downgrade(&meter));
        meter
    }
}

/// Connection whose incoming streams are metered.
pub(super) struct Metered {
    inner: h3_quinn::Connection,
    meters: Meters,
}

impl Metered {
    pub(super) fn new(connection: quinn::Connection, meters: Meters) -> Self {
        Self { inner: h3_quinn::Connection::new(connection), meters }
    }
}

/// Metered bidirectional stream.
pub(super) struct MeteredStream {
    inner: h3_quinn::BidiStream<Bytes>,
    meter: Arc<Meter>,
}

/// Receiving half of a stream, or a unidirectional stream.
pub(super) struct MeteredRecv {
    inner: h3_quinn::RecvStream,
    meter: Arc<Meter>,
}

impl Connection<Bytes> for Metered {
    type RecvStream = MeteredRecv;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<MeteredRecv, ConnectionErrorIncoming>> {
        let accepted = Connection::<Bytes>::poll_accept_recv(&mut self.inner, context);
        accepted.map_ok(|inner| MeteredRecv { meter: self.meters.for_stream(inner.recv_id()), inner })
    }

    fn poll_accept_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<MeteredStream, ConnectionErrorIncoming>> {
        let accepted = Connection::<Bytes>::poll_accept_bidi(&mut self.inner, context);
        accepted.map_ok(|inner| MeteredStream { meter: self.meters.for_stream(inner.recv_id()), inner })
    }

    fn opener(&self) -> Opener {
        Opener { inner: Connection::<Bytes>::opener(&self.inner), meters: self.meters.clone() }
    }
}

/// Opens streams to the client.
pub(super) struct Opener {
    inner: h3_quinn::OpenStreams,
    meters: Meters,
}

macro_rules! opens_streams {
    ($type:ty) => {
        impl OpenStreams<Bytes> for $type {
            type BidiStream = MeteredStream;
            type SendStream = h3_quinn::SendStream<Bytes>;

            fn poll_open_bidi(
                &mut self,
                context: &mut Context<'_>,
            ) -> Poll<Result<MeteredStream, StreamErrorIncoming>> {
                let opened = OpenStreams::<Bytes>::poll_open_bidi(&mut self.inner, context);
                opened.map_ok(|inner| MeteredStream { meter: self.meters.for_stream(inner.recv_id()), inner })
            }

            fn poll_open_send(
                &mut self,
                context: &mut Context<'_>,
            ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
                OpenStreams::<Bytes>::poll_open_send(&mut self.inner, context)
            }

            fn close(&mut self, code: Code, reason: &[u8]) {
                OpenStreams::<Bytes>::close(&mut self.inner, code, reason);
            }
        }
    };
}

opens_streams!(Metered);
opens_streams!(Opener);

/// Reads from a stream, and stops the stream when h3 buffers too much of it.
fn poll_metered<S: RecvStream<Buf = Bytes>>(
    stream: &mut S,
    meter: &Meter,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
    let read = stream.poll_data(context);
    if let Poll::Ready(Ok(Some(data))) = &read
        && let Err(error) = meter.charge(data.len())
    {
        stream.stop_sending(Code::H3_EXCESSIVE_LOAD.value());
        return Poll::Ready(Err(error));
    }
    read
}

impl RecvStream for MeteredRecv {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        poll_metered(&mut self.inner, &self.meter, context)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.inner.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.inner.recv_id()
    }
}

impl RecvStream for MeteredStream {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        poll_metered(&mut self.inner, &self.meter, context)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.inner.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.inner.recv_id()
    }
}

impl SendStream<Bytes> for MeteredStream {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.inner.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.inner.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.inner.poll_finish(context)
    }

    fn reset(&mut self, reset_code: u64) {
        self.inner.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.inner.send_id()
    }
}

impl BidiStream<Bytes> for MeteredStream {
    type SendStream = h3_quinn::SendStream<Bytes>;
    type RecvStream = MeteredRecv;

    fn split(self) -> (Self::SendStream, MeteredRecv) {
        let (send, recv) = BidiStream::<Bytes>::split(self.inner);
        (send, MeteredRecv { inner: recv, meter: self.meter })
    }
}
