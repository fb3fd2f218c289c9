//! Why a request gets no answer: what is wrong, and what to do.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::work::WorkError;

/// A request that is not answered. The outermost layer of `http` writes it in the shape that the client expects.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// A sentence.
    pub message: String,
    /// A word for programs, as OpenAI's `code`.
    pub code: Option<&'static str>,
    /// The field that is wrong.
    pub field: Option<&'static str>,
    /// After how many seconds to ask again.
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// With a status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), code: None, field: None, retry_after: None }
    }

    /// The request is wrong.
    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field of the request is wrong.
    pub fn field(field: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { field: Some(field), ..Refusal::bad(message) }
    }

    /// What was asked for is not here.
    pub fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, message)
    }

    /// More than is allowed.
    pub fn too_large(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The queue is full.
    pub fn busy(message: impl Into<String>) -> Refusal {
        let code = Some("rate_limit_exceeded");
        Refusal { code, retry_after: Some(1), ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    /// The work failed. What of is for the log, not for clients.
    pub fn internal() -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the model failed on this request; the server's log says more")
    }

    /// Not now.
    pub fn unavailable(message: impl Into<String>) -> Refusal {
        Refusal { retry_after: Some(2), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<WorkError> for Refusal {
    fn from(error: WorkError) -> Refusal {
        match error {
            WorkError::Input(message) => Refusal::bad(message),
            WorkError::TooLarge(message) => Refusal::too_large(message),
            WorkError::Memory(_) => Refusal::unavailable(
                "the server has too little memory for this now; ask for less, or again in a moment",
            ),
            WorkError::Busy => Refusal::busy("the model's queue is full; ask again in a moment"),
            WorkError::Failed(_) => Refusal::internal(),
        }
    }
}
