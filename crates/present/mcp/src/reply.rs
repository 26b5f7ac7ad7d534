//! Answers to a client: a line each, without its end.

use crate::message::{Refused, RequestId};
use crate::tool::Tool;
use serde_json::{Value, json};

/// Versions of the protocol that this server speaks, the newest first. What it sends is the same in all.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

fn result(id: &RequestId, result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.value(), "result": result}).to_string()
}

/// The answer to `initialize`: the client's version of the protocol where it is known, else the newest that this server speaks.
pub fn initialized(id: &RequestId, version: &str, program: &str, instructions: &str) -> String {
    let known = VERSIONS.iter().find(|known| **known == version);
    let answer = json!({
        "protocolVersion": known.unwrap_or(&VERSIONS[0]),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "vmtax", "version": program},
        "instructions": instructions,
    });
    result(id, answer)
}

/// The answer to `ping`.
pub fn pong(id: &RequestId) -> String {
    result(id, json!({}))
}

/// The answer to `tools/list`.
pub fn tools(id: &RequestId, tools: &[Tool]) -> String {
    let tools: Vec<Value> = tools.iter().map(Tool::definition).collect();
    result(id, json!({"tools": tools}))
}

/// The answer of a tool: a sentence, and a document, as text and as structured content. That is an object: a list is in its
/// field `items`.
pub fn answer(id: &RequestId, sentence: &str, document: &Value) -> String {
    let structured = match document {
        Value::Object(_) => document.clone(),
        other => json!({"items": other}),
    };
    let content = json!([
        {"type": "text", "text": sentence},
        {"type": "text", "text": document.to_string()},
    ]);
    let answer = json!({"content": content, "structuredContent": structured, "isError": false});
    result(id, answer)
}

/// The failure of a tool, with its reason: a client shows it to the model, which can do better.
pub fn failure(id: &RequestId, reason: &str) -> String {
    let content = json!([{"type": "text", "text": reason}]);
    result(id, json!({"content": content, "isError": true}))
}

/// An error of the protocol.
pub fn refused(refused: &Refused) -> String {
    let Refused { id, code, reason } = refused;
    let id = id.as_ref().map(RequestId::value);
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": reason}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    fn id() -> RequestId {
        match Message::parse(br#"{"jsonrpc": "2.0", "id": 5, "method": "ping"}"#) {
            Ok(Message::Ping { id }) => id,
            other => panic!("{other:?}"),
        }
    }

    fn read(line: &str) -> Value {
        assert!(!line.contains('\n'));
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn a_version_that_is_unknown_is_answered_with_the_newest() {
        for (asked, answered) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-11-25", "2025-11-25"),
            ("2099-01-01", "2025-11-25"),
            ("", "2025-11-25"),
        ] {
            let reply = read(&initialized(&id(), asked, "1", ""));
            assert_eq!(reply["result"]["protocolVersion"], answered);
        }
    }

    #[test]
    fn an_answer_has_a_sentence_and_its_document_twice() {
        let document = json!({"name": "a\nb"});
        let reply = read(&answer(&id(), "Two\nlines.", &document));
        let result = &reply["result"];
        assert_eq!(result["structuredContent"], document);
        assert_eq!(result["content"][0]["text"], "Two\nlines.");
        let text = result["content"][1]["text"].as_str().unwrap();
        assert_eq!(read(text), document);
        let reply = read(&answer(&id(), "", &json!([1])));
        assert_eq!(reply["result"]["structuredContent"], json!({"items": [1]}));
    }
}
