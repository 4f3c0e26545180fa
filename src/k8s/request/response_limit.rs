//! A size limit for one answer of an API server. A watch that reaches it ends, as watches do anyway, and is continued
//! by another.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::combinators::MapErr;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use tower::{BoxError, Layer, Service};

/// Number of bytes that an answer may have. A fleet of a thousand clusters that report much stays well below.
pub(crate) const MAX_BYTES: usize = 128 << 20;

/// Error of an answer that was cut off because it is larger than the limit, which it holds, in bytes.
#[derive(Debug, thiserror::Error)]
#[error("the server's answer is larger than {} MiB", .0 >> 20)]
pub(crate) struct TooLarge(pub(crate) usize);

/// A body that ends with an error where it continues beyond the limit.
pub(crate) type Bounded<B> = MapErr<Limited<B>, fn(BoxError) -> BoxError>;

fn limit_body<B: Body<Error: Into<BoxError>>>(body: B, limit: usize) -> Bounded<B> {
    Limited::new(body, limit)
        .map_err(|error| if error.is::<LengthLimitError>() { TooLarge(MAX_BYTES).into() } else { error })
}

/// Puts [`AnswerLimited`] around a service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerLimit;

/// A service whose answers are bounded.
#[derive(Debug, Clone)]
pub(crate) struct AnswerLimited<S>(S);

impl<S> Layer<S> for AnswerLimit {
    type Service = AnswerLimited<S>;

    fn layer(&self, inner: S) -> AnswerLimited<S> {
        AnswerLimited(inner)
    }
}

impl<S, B, C> Service<Request<B>> for AnswerLimited<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
    C: Body<Error: Into<BoxError>>,
{
    type Response = Response<Bounded<C>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| limit_body(body, MAX_BYTES))) })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::body::Bytes;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_up_to_the_limit_and_not_beyond() {
        let [whole, too_large] =
            [1000, 1001].map(|length| limit_body(Full::new(Bytes::from(vec![b'x'; length])), 1000));
        assert_eq!(whole.collect().await.unwrap().to_bytes().len(), 1000);
        let error = too_large.collect().await.unwrap_err();
        assert_eq!(error.to_string(), "the server's answer is larger than 128 MiB");
    }
}
