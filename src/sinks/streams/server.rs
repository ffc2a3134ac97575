//! The gRPC of a stream: one method under the names of all services that have it.

use std::{convert::Infallible, future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use futures::{Stream, stream};
use hyper::{Request, Response, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{Grpc, ServerStreamingService},
};
use tracing::{debug, warn};

use super::queue::{Ended, Reading};
use crate::{
    clock::Clock,
    config::{limits, stream_limits},
    http::{Access, Grant, Scope},
    sink_line::{
        Numbered,
        smg::{SubscribeKvEventsRequest, with_number},
    },
};

/// The method, as each of the engines' services has it.
const METHOD: &str = "SubscribeKvEvents";

/// Those services: a gateway asks for the one of the engine that it takes a worker for.
const SERVICES: [&str; 4] = [
    "vllm.grpc.engine.VllmEngine",
    "sglang.grpc.scheduler.SglangScheduler",
    "trtllm.TrtllmService",
    "tokenspeed.grpc.scheduler.TokenSpeedScheduler",
];

/// A reader that opens a stream.
pub(in crate::sinks) struct Opening {
    /// The number of the last batch that it has; 0 = none.
    pub(super) last: u64,
    pub(super) peer: SocketAddr,
    pub(super) answer: oneshot::Sender<Result<Reading, Refusal>>,
}

/// Why it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody knows what happened behind that number.
    Expired,
    /// As many are open as may be.
    TooMany,
}

/// What connections are served with.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) model: Arc<str>,
    pub(super) access: Access,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) asked: mpsc::Sender<Opening>,
    pub(super) stop: CancellationToken,
}

impl Server {
    /// Serves until stopped, and until the streams that are open then have ended.
    pub(super) async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                // Closed at once: whoever is refused comes again.
                Ok(_) if connections.len() >= stream_limits::SINK_STREAMS_MAX => (),
                Ok((stream, peer)) => {
                    connections.spawn(self.clone().connection(stream, peer));
                }
                Err(error) => {
                    warn!(%error, "cannot accept a reader of a sink");
                    tokio::time::sleep(stream_limits::SINK_ACCEPT_RETRY).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr) {
        // Batches are small and waited for.
        drop(stream.set_nodelay(true));
        let Some(acceptor) = self.tls.clone() else {
            return Box::pin(self.speak(stream, peer)).await;
        };
        let shaken = acceptor.accept(stream);
        match tokio::time::timeout(limits::HTTP_HANDSHAKE_DEADLINE, shaken).await {
            Ok(Ok(stream)) => Box::pin(self.speak(stream, peer)).await,
            Ok(Err(error)) => debug!(%error, "a reader of a sink was not let in"),
            Err(_) => debug!("a reader of a sink said nothing"),
        }
    }

    async fn speak<S>(self, stream: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stop = self.stop.clone();
        let service = service_fn(move |request| self.clone().answer(request, peer));
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(Some(stream_limits::SINK_PING_EVERY))
            .keep_alive_timeout(stream_limits::SINK_PING_DEADLINE)
            .max_concurrent_streams(stream_limits::SINK_STREAMS_OF_CONNECTION)
            .max_header_list_size(stream_limits::SINK_STREAM_HEAD_BYTES);
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, "a reader of a sink is gone");
        }
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Body>, Infallible> {
        let known = request.uri().path().strip_prefix('/').and_then(|path| path.split_once('/'));
        let known =
            known.is_some_and(|(service, method)| method == METHOD && SERVICES.contains(&service));
        if !known {
            let status = Status::unimplemented("only SubscribeKvEvents is served here");
            return Ok(status.into_http());
        }
        let grant = match self.admit(&request) {
            Ok(grant) => grant,
            Err(status) => return Ok(status.into_http()),
        };
        let subscribe = Subscribe { asked: self.asked, peer, grant };
        let mut grpc = Grpc::new(Batches)
            .apply_max_message_size_config(Some(stream_limits::SINK_STREAM_REQUEST_BYTES), None);
        Ok(grpc.server_streaming(subscribe, request).await)
    }

    /// What a reader is granted; `None` = nobody is asked. It sees prompts.
    fn admit(&self, request: &Request<Incoming>) -> Result<Option<Arc<Grant>>, Status> {
        if matches!(self.access, Access::Open) {
            return Ok(None);
        }
        let grant = self.access.admit(request.headers(), Clock::unix_ms());
        let grant = grant.map_err(|_| Status::unauthenticated("expected a token that is known"))?;
        let sees = grant.require(Scope::Tokens).is_ok() && grant.sees(&self.model);
        if sees {
            return Ok(Some(grant));
        }
        Err(Status::permission_denied("this needs the scope tokens, and the model of the replica"))
    }
}

/// One call.
struct Subscribe {
    asked: mpsc::Sender<Opening>,
    peer: SocketAddr,
    grant: Option<Arc<Grant>>,
}

type Batched = Pin<Box<dyn Stream<Item = Result<Numbered, Status>> + Send>>;

impl ServerStreamingService<SubscribeKvEventsRequest> for Subscribe {
    type Response = Numbered;
    type ResponseStream = Batched;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Batched>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<SubscribeKvEventsRequest>) -> Self::Future {
        let (asked, peer, grant) = (self.asked.clone(), self.peer, self.grant.clone());
        let last = request.into_inner().start_sequence_number;
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let busy = |_| Status::unavailable("the sink is busy, or ends");
            asked.try_send(Opening { last, peer, answer }).map_err(busy)?;
            let reading = answered.await.map_err(|_| Status::unavailable("the sink ends"))?;
            let reading = reading.map_err(|refusal| match refusal {
                Refusal::Expired => {
                    Status::out_of_range("what follows this number is gone: begin at 0")
                }
                Refusal::TooMany => Status::resource_exhausted("too many streams are open"),
            })?;
            Ok(tonic::Response::new(batches(reading, grant)))
        })
    }
}

/// All that a reader is told, and why nothing follows.
fn batches(reading: Reading, grant: Option<Arc<Grant>>) -> Batched {
    Box::pin(stream::unfold(Some((reading, grant)), async |state| {
        let (mut reading, grant) = state?;
        let next = reading.next().await;
        if grant.as_ref().is_some_and(|grant| grant.expired(Clock::unix_ms())) {
            return Some((Err(Status::unauthenticated("the token's time is over")), None));
        }
        match next {
            Ok(batch) => Some((Ok(batch), Some((reading, grant)))),
            Err(Ended::Slow) => {
                Some((Err(Status::data_loss("this reader was too slow: begin at 0")), None))
            }
            Err(Ended::Over) => {
                Some((Err(Status::data_loss("this replica is read no more: begin at 0")), None))
            }
        }
    }))
}

/// How messages are written and read.
#[derive(Clone, Copy)]
struct Batches;

impl Codec for Batches {
    type Encode = Numbered;
    type Decode = SubscribeKvEventsRequest;
    type Encoder = Batches;
    type Decoder = Batches;

    fn encoder(&mut self) -> Batches {
        *self
    }

    fn decoder(&mut self) -> Batches {
        *self
    }
}

impl Encoder for Batches {
    type Item = Numbered;
    type Error = Status;

    fn encode(&mut self, batch: Numbered, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        with_number(&batch, out);
        Ok(())
    }
}

impl Decoder for Batches {
    type Item = SubscribeKvEventsRequest;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let request = SubscribeKvEventsRequest::decode(from);
        request.map(Some).map_err(|_| Status::invalid_argument("expected a request"))
    }
}
