package message

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// wrappers are bodies of messages, and whether the adapter writes such ones.
var wrappers = map[string]bool{
	`{"Headers":{"NServiceBus.MessageId":"m-1","a":"quoted \" \\ é"},"Body":"aGVsbG8="}`: true,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":""}`:                              true,
	`{"Headers":{"NServiceBus.MessageId":",\"Body\":\""},"Body":"aGVsbG8="}`:             true,
	`{"Headers":{},"Body":"aGVsbG8="}`:                                                   true, // and an application's, without an id
	`{"Headers":{"NServiceBus.MessageId":"m-1"} ,"Body":"aGVsbG8="}`:                     true,

	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"empty message"}`:                false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8=","S3BodyKey":null}`:    false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"","S3BodyKey":"key"}`:           false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Other":{"a":"b"},"Body":"aGVsbG8="}`:   false,
	`{"Headers":{"a":"b"},"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="}`: false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"x","Body":"aGVsbG8="}`:          false,
	`{"Body":"aGVsbG8=","Headers":{"NServiceBus.MessageId":"m-1"}}`:                     false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVs` + "\n" + `bG8="}`:         false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVs\nbG8="}`:                   false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"no base64!"}`:                   false,
	`{"Headers":{"NServiceBus.MessageId":7},"Body":"aGVsbG8="}`:                         false,
	`{"Headers":{"NServiceBus.MessageId":"m-1","":"no key"},"Body":"aGVsbG8="}`:         false,
	`{"Headers":["NServiceBus.MessageId"],"Body":"aGVsbG8="}`:                           false,
	`{"Headers":null,"Body":"aGVsbG8="}`:                                                false,
	`{"Headers":"NServiceBus.MessageId","Body":"aGVsbG8="}`:                             false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="} `:                    false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="}}`:                    false,
	`{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="`:                      false,
	`{"Headers":"}`: false,
	`{"Headers":`:   false,
	`{"Headers":{"NServiceBus.MessageId":"` + "\xff" + `"},"Body":"aGVsbG8="}`: false,
}

func TestParseWritten_RecognizesWrittenTexts(t *testing.T) {
	t.Parallel()
	for text, want := range wrappers {
		if _, _, ok := parseWritten(text); ok != want {
			t.Errorf("%s: parseWritten returns %v", text, ok)
		}
	}
	var out core.Outgoing
	out.ID, out.Body = "m-1", []byte("hello")
	out.Headers.Set(headers.MessageID, "m-1")
	written := (&Codec{}).write(&out, outgoingHeaders(&out), "")
	if _, _, ok := parseWritten(written.Text); !ok {
		t.Errorf("the adapter writes %s, which takes the slow path", written.Text)
	}
}

// FuzzParseWritten compares it with encoding/json.
func FuzzParseWritten(f *testing.F) {
	for text := range wrappers {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		headers, body, ok := parseWritten(text)
		if !ok {
			return
		}
		var want struct {
			Headers map[string]*string
			Body    []byte
		}
		decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&want); err != nil || want.Headers == nil || decoder.InputOffset() != int64(len(text)) {
			t.Fatalf("%q is no wrapper: %v", text, err)
		}
		if !bytes.Equal(body, want.Body) || headers.Len() != len(want.Headers) {
			t.Errorf("%q: the body is %q, and there are %d headers; want %q and %d", text, body, headers.Len(), want.Body, len(want.Headers))
		}
		for key, v := range want.Headers {
			if got, has := headers.Lookup(key); !has || got != value(v) {
				t.Errorf("%q: the header %q is %q, want %q", text, key, got, value(v))
			}
		}
	})
}

// A message that takes the fast path is read as another one with the same meaning.
func TestRead_SameOnBothPaths(t *testing.T) {
	t.Parallel()
	c := &Codec{}
	for fast, slow := range map[string]string{
		`{"Headers":{"NServiceBus.MessageId":"m-1","a":"b"},"Body":"aGVsbG8="}`: `{ "Headers":{"NServiceBus.MessageId":"m-1","a":"b"},"Body":"aGVsbG8="}`,
		`{"Headers":{"a":"b"},"Body":"aGVsbG8="}`:                               `{ "Headers":{"a":"b"},"Body":"aGVsbG8="}`, // an application's object
	} {
		if _, _, ok := parseWritten(fast); !ok {
			t.Fatalf("%s is not fast", fast)
		}
		a, b := c.Read("billing", &types.Message{Body: &fast}), c.Read("billing", &types.Message{Body: &slow})
		if !bytes.Equal(a.Body, b.Body) && (string(a.Body) != fast || string(b.Body) != slow) {
			t.Errorf("the bodies of %s and %s are %q and %q", fast, slow, a.Body, b.Body)
		}
		if a.Headers.Len() != b.Headers.Len() || a.Headers.Get("a") != b.Headers.Get("a") || a.ID != b.ID || a.Malformed != nil || b.Malformed != nil {
			t.Errorf("%s and %s are read as %+v and %+v", fast, slow, a.Incoming, b.Incoming)
		}
	}
}
