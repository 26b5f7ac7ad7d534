//! Messages of a client: requests, notifications, and what is neither.

use serde_json::{Map, Value};

/// A request's identifier, a text or a number, which its answer repeats.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestId(Value);

impl RequestId {
    /// Returns the identifier if it is one: a text or a number.
    fn new(value: &Value) -> Option<RequestId> {
        (value.is_string() || value.is_number()).then(|| RequestId(value.clone()))
    }

    pub(crate) fn value(&self) -> &Value {
        &self.0
    }
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The first request of a client.
    Initialize {
        /// Identifier of the request.
        id: RequestId,
        /// The client's version of the protocol, a date.
        version: String,
    },
    /// A request to show that the server lives.
    Ping {
        /// Identifier of the request.
        id: RequestId,
    },
    /// A request for all tools.
    ListTools {
        /// Identifier of the request.
        id: RequestId,
    },
    /// A call of a tool.
    CallTool {
        /// Identifier of the request.
        id: RequestId,
        /// Name of the tool.
        name: String,
        /// Arguments of the call, unchecked.
        arguments: Map<String, Value>,
    },
    /// The client does not want the answer to a request any more.
    Cancelled {
        /// The identifier of that request.
        id: RequestId,
    },
    /// Nothing that a server of tools answers: another notification, or a response.
    Unanswered,
}

/// Why a line is no message, or not one for this server.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// The identifier of the request, where it has one.
    pub id: Option<RequestId>,
    /// The error's number in JSON-RPC.
    pub code: i32,
    /// Reason of the error.
    pub reason: String,
}

impl Refused {
    /// The line is no JSON.
    const NO_JSON: i32 = -32700;
    /// It is no request of JSON-RPC.
    const INVALID_REQUEST: i32 = -32600;
    /// The server has no such method.
    const NO_METHOD: i32 = -32601;
    /// A parameter is missing, or is of another type.
    const INVALID_PARAMETERS: i32 = -32602;

    /// A line that is no request.
    pub fn invalid(reason: impl Into<String>) -> Refused {
        Refused {
            id: None,
            code: Refused::INVALID_REQUEST,
            reason: reason.into(),
        }
    }

    /// A request with wrong parameters.
    pub fn parameters(id: RequestId, reason: impl Into<String>) -> Refused {
        Refused {
            id: Some(id),
            code: Refused::INVALID_PARAMETERS,
            reason: reason.into(),
        }
    }
}

impl Message {
    /// Parses a line.
    ///
    /// # Errors
    /// [`Refused`] for what is no JSON, no request of JSON-RPC 2.0, or a request of a method or with parameters that a server of
    /// tools does not have. Batches, which the protocol had in 2025-03-26 alone, are refused.
    pub fn parse(line: &[u8]) -> Result<Message, Refused> {
        let message: Value = serde_json::from_slice(line).map_err(|error| Refused {
            id: None,
            code: Refused::NO_JSON,
            reason: format!("not JSON: {error}"),
        })?;
        let Value::Object(message) = message else {
            return Err(Refused::invalid(
                "a message is one JSON object; batches are not supported",
            ));
        };
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(Refused::invalid("\"jsonrpc\" is not \"2.0\""));
        }
        let none = Map::new();
        let parameters = message.get("params").and_then(Value::as_object);
        let parameters = parameters.unwrap_or(&none);
        let Some(method) = message.get("method") else {
            // An answer to a request that this server never sent.
            return Ok(Message::Unanswered);
        };
        let Some(method) = method.as_str() else {
            return Err(Refused::invalid("\"method\" is not a text"));
        };
        match message.get("id") {
            None => Ok(notification(method, parameters)),
            Some(id) => match RequestId::new(id) {
                Some(id) => request(id, method, parameters),
                None => Err(Refused::invalid("\"id\" is neither a text nor a number")),
            },
        }
    }
}

fn notification(method: &str, parameters: &Map<String, Value>) -> Message {
    let id = parameters.get("requestId").and_then(RequestId::new);
    match (method, id) {
        ("notifications/cancelled", Some(id)) => Message::Cancelled { id },
        _ => Message::Unanswered,
    }
}

fn request(
    id: RequestId,
    method: &str,
    parameters: &Map<String, Value>,
) -> Result<Message, Refused> {
    let text = |name: &str| {
        let value = parameters.get(name).and_then(Value::as_str);
        value
            .map(str::to_owned)
            .ok_or_else(|| Refused::parameters(id.clone(), format!("\"{name}\" is not a text")))
    };
    match method {
        "initialize" => Ok(Message::Initialize {
            version: text("protocolVersion")?,
            id,
        }),
        "ping" => Ok(Message::Ping { id }),
        "tools/list" => Ok(Message::ListTools { id }),
        "tools/call" => {
            let name = text("name")?;
            let arguments = match parameters.get("arguments") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(arguments)) => arguments.clone(),
                Some(_) => {
                    return Err(Refused::parameters(id, "\"arguments\" is not an object"));
                }
            };
            Ok(Message::CallTool {
                id,
                name,
                arguments,
            })
        }
        _ => Err(Refused {
            id: Some(id),
            code: Refused::NO_METHOD,
            reason: "this server has tools alone: tools/list, tools/call".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply;
    use proptest::prelude::*;
    use serde_json::json;

    fn parsed(message: &Value) -> Result<Message, Refused> {
        Message::parse(message.to_string().as_bytes())
    }

    fn id(value: Value) -> RequestId {
        RequestId::new(&value).unwrap()
    }

    #[test]
    fn each_message_of_a_client_is_recognized() {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}});
        let version = "2025-06-18".to_owned();
        assert_eq!(
            parsed(&message),
            Ok(Message::Initialize {
                id: id(json!(1)),
                version
            })
        );
        let message =
            json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "vms"}});
        let expected = Message::CallTool {
            id: id(json!("a")),
            name: "vms".to_owned(),
            arguments: Map::new(),
        };
        assert_eq!(parsed(&message), Ok(expected));
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        assert_eq!(
            parsed(&message),
            Ok(Message::Cancelled { id: id(json!(7)) })
        );
        for unanswered in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "vms"}}),
            json!({"jsonrpc": "2.0", "id": 4, "result": {}}),
        ] {
            assert_eq!(parsed(&unanswered), Ok(Message::Unanswered), "{unanswered}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_number_of_its_error() {
        let deep = "[".repeat(100_000);
        for (line, code) in [
            ("{", -32700),
            ("", -32700),
            ("\u{0}", -32700),
            (&deep, -32700),
            ("[]", -32600),
            ("null", -32600),
            (r#"{"id": 1, "method": "ping"}"#, -32600),
            (
                r#"{"jsonrpc": "2.0", "id": null, "method": "ping"}"#,
                -32600,
            ),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": 3}"#, -32600),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}"#,
                -32601,
            ),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}"#,
                -32602,
            ),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "vms", "arguments": [1]}}"#,
                -32602,
            ),
        ] {
            let refused = Message::parse(line.as_bytes()).unwrap_err();
            assert_eq!(refused.code, code, "{line:.80}");
        }
        assert_eq!(Message::parse(b"\xff\xfe").unwrap_err().code, -32700);
    }

    proptest! {
        #[test]
        fn any_line_is_a_message_or_an_error_of_one_line(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Err(refused) = Message::parse(&line) {
                let reply = reply::refused(&refused);
                prop_assert!(!reply.contains('\n'));
            }
        }

        #[test]
        fn an_answer_repeats_the_identifier(text in ".*", number in any::<i64>()) {
            for value in [json!(text), json!(number)] {
                let request = json!({"jsonrpc": "2.0", "id": value, "method": "ping"});
                let Ok(Message::Ping { id }) = parsed(&request) else {
                    panic!("{request}");
                };
                let reply: Value = serde_json::from_str(&reply::pong(&id)).unwrap();
                prop_assert_eq!(&reply["id"], &value);
            }
        }
    }
}
