//! Reads a sink as a router does that opens a stream.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::http::uri::PathAndQuery;
use hyper::{Request, Response, body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::{Message as _, bytes::Buf as _};
use tokio::net::TcpStream;
use tonic::{
    Status, Streaming,
    body::Body,
    client::{Grpc, GrpcService},
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::{
    AccessArgs, CliError, Console, bridge, sink::SinkError, sink_read::Address, sink_shown::Shown,
};
use crate::{
    config::Secret,
    sink_check::{Checker, Kind, Message},
    sink_line::{
        Preset,
        smg::{KvEventBatch, SubscribeKvEventsRequest},
    },
};

/// The method under the name of one of its services; sinks serve it under all.
const PATH: &str = "/tokenspeed.grpc.scheduler.TokenSpeedScheduler/SubscribeKvEvents";

/// Reads all that there is, then what is live, until so many messages were shown.
pub(super) async fn read(
    (address, access, preset): (&Address, &AccessArgs, Preset),
    count: usize,
    shown: &mut Shown,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    let token = access.token_file.as_deref().map(bridge::one_line);
    let token = token.transpose().map_err(SinkError::from)?;
    let mut stream = Stream::open(&address.link_text(), token.as_ref()).await?;
    let mut checker = Checker::new(preset.needs());
    shown.asked(0, console)?;
    while shown.message_count() < count {
        let Streamed { seq, bytes } = stream.next().await?;
        let verdict = checker.live(&[b"", &seq.to_be_bytes(), &bytes]);
        let bytes = bytes.len();
        shown.message(&Message { kind: Kind::Live, topic: b"", bytes, verdict }, console)?;
    }
    Ok(())
}

/// A message and its number.
struct Streamed {
    seq: u64,
    bytes: Vec<u8>,
}

/// An open stream.
struct Stream {
    endpoint: String,
    messages: Streaming<Streamed>,
}

impl Stream {
    /// Opens one that begins with all that there is.
    async fn open(endpoint: &str, token: Option<&Secret>) -> Result<Stream, SinkError> {
        let failed = |why: String| SinkError::Stream { endpoint: endpoint.to_owned(), why };
        let (scheme, authority) = endpoint.split_once("://").unwrap_or(("http", endpoint));
        if scheme == "https" {
            return Err(failed("encrypted streams are not read here".to_owned()));
        }
        let connected = TcpStream::connect(authority).await.map_err(|it| failed(it.to_string()))?;
        let shaken =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(connected));
        let (sender, connection) = shaken.await.map_err(|it| failed(it.to_string()))?;
        // Ends with its sender, or with the other side: then the stream says so.
        tokio::spawn(async move { drop(connection.await) });
        let origin = format!("http://{authority}").parse();
        let origin = origin.map_err(|_| failed("expected host:port".to_owned()))?;
        let mut grpc = Grpc::with_origin(Sender(sender), origin);
        let mut request = tonic::Request::new(SubscribeKvEventsRequest::default());
        if let Some(token) = token {
            let value = format!("Bearer {}", token.expose()).parse();
            let value = value.map_err(|_| failed("the token has strange characters".to_owned()))?;
            request.metadata_mut().insert("authorization", value);
        }
        let path = PathAndQuery::from_static(PATH);
        let opened = grpc.server_streaming(request, path, Messages).await;
        let opened = opened.map_err(|status| failed(said(&status)))?;
        Ok(Stream { endpoint: endpoint.to_owned(), messages: opened.into_inner() })
    }

    /// The next message.
    async fn next(&mut self) -> Result<Streamed, SinkError> {
        match self.messages.message().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(SinkError::Ended { endpoint: self.endpoint.clone() }),
            Err(status) => {
                Err(SinkError::Stream { endpoint: self.endpoint.clone(), why: said(&status) })
            }
        }
    }
}

fn said(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// One connection, as calls are made over it.
struct Sender(SendRequest<Body>);

impl GrpcService<Body> for Sender {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// How messages are written and read.
#[derive(Clone, Copy)]
struct Messages;

impl Codec for Messages {
    type Encode = SubscribeKvEventsRequest;
    type Decode = Streamed;
    type Encoder = Messages;
    type Decoder = Messages;

    fn encoder(&mut self) -> Messages {
        *self
    }

    fn decoder(&mut self) -> Messages {
        *self
    }
}

impl Encoder for Messages {
    type Item = SubscribeKvEventsRequest;
    type Error = Status;

    fn encode(
        &mut self,
        request: SubscribeKvEventsRequest,
        out: &mut EncodeBuf<'_>,
    ) -> Result<(), Status> {
        request.encode(out).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Messages {
    type Item = Streamed;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Streamed>, Status> {
        let bytes = from.copy_to_bytes(from.remaining()).to_vec();
        let number = KvEventBatch::decode(bytes.as_slice()).map(|batch| batch.sequence_number);
        // One that cannot be read is shown as that: the checker says so.
        Ok(Some(Streamed { seq: number.unwrap_or(0), bytes }))
    }
}
