//! From traces to requests, from requests to layers.
