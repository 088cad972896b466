package rabbitmq_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// Bodies of other programs are decoded if they are JSON in another encoding, and otherwise
// the error says which one they have.
func TestEncodings_OfForeignBodies(t *testing.T) {
	t.Parallel()
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := io.WriteString(w, `{"Number":7}`); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const utf16 = "{\x00\"\x00N\x00u\x00m\x00b\x00e\x00r\x00\"\x00:\x007\x00}\x00"
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
		handled := make(chan order, 10)
		ep, err := core.New("billing", transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, core.NewMessageType[order]("orders.placed"), func(_ context.Context, _ *core.Message, body order) error {
			handled <- body
			return nil
		})
		runs(t, ep)
		ch := s.channel(t)
		publish := func(m amqp.Publishing) {
			m.Type = "orders.placed"
			if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, m); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []amqp.Publishing{
			{ContentType: "application/json", Body: []byte("\ufeff" + `{"Number":7}`)},
			{ContentType: "application/json; charset=utf-16", Body: []byte(utf16)},
			{ContentType: "application/vnd.shop.order+json", Body: []byte(`{"Number":7}`)},
		} {
			publish(m)
			awaitTrue(t, "it is handled", func() bool { return len(handled) == 1 })
			if body := <-handled; body.Number != 7 {
				t.Errorf("%s is decoded as %+v", m.ContentType, body)
			}
		}
		for says, m := range map[string]amqp.Publishing{
			`the body begins with 1f 8b 08 00 00 00 00 00: it is compressed with gzip, which middleware has to unpack (Message.SetBody); its content encoding is "gzip"`: {
				ContentType: "application/json", ContentEncoding: "gzip", Body: compressed.Bytes(),
			},
			`its charset "windows-1252" is none of UTF-8, UTF-16 and ISO-8859-1`: {ContentType: "application/json; charset=windows-1252", Body: []byte("{}")},
			"this content type is not JSON; let the sender name another one":     {ContentType: "application/x-protobuf", Body: []byte("\x08\x07")},
		} {
			publish(m)
			awaitTrue(t, "it is in the error queue", func() bool {
				d, ok, err := ch.Get("error", true)
				if err != nil {
					t.Fatal(err)
				}
				if text, _ := d.Headers[headers.ExceptionMessage].(string); ok && (!strings.Contains(text, says) || !bytes.Equal(d.Body, m.Body)) {
					t.Errorf("the error is %q, want %q in it", text, says)
				}
				return ok
			})
		}
	})
}
