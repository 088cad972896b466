package cloudevents_test

import (
	"context"
	"fmt"
	"log"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/cloudevents"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: blob
// BlobCreated is the data of an event of Azure Blob Storage.
type BlobCreated struct {
	URL           string `json:"url"`
	ContentLength int    `json:"contentLength"`
}

var blobCreated = core.NewMessageType[BlobCreated]("Microsoft.Storage.BlobCreated")

// end

// snippet: endpoint
func newEndpoint(t core.Transport, book func(ctx context.Context, source string, blob BlobCreated) error) (*core.Endpoint, error) {
	events, err := cloudevents.New(cloudevents.Config{Source: "/shop/invoices"})
	if err != nil {
		return nil, err
	}
	ep, err := core.New("invoices", t, core.Config{
		MessageType: events.MessageType, MessageID: events.MessageID, // of received events
		Middleware:     []core.Middleware{events},          // their data is the body
		SendMiddleware: []core.SendMiddleware{events.Send}, // sent messages are events
	})
	if err != nil {
		return nil, err
	}
	core.Handle(ep, blobCreated, func(ctx context.Context, m *core.Message, body BlobCreated) error {
		return book(ctx, cloudevents.Attribute(m, "source"), body)
	})
	return ep, nil
}

// end

func ExampleNew() {
	transport := inmemory.Open()
	booked := make(chan string)
	ep, err := newEndpoint(transport, func(_ context.Context, source string, blob BlobCreated) error {
		booked <- fmt.Sprint(blob.URL, " of ", blob.ContentLength, " bytes from ", source)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	<-ep.Ready()
	// As a service puts it into the queue: the body is all.
	event := `{"specversion":"1.0","id":"9aeb0fdf","source":"/storage/invoices","type":"Microsoft.Storage.BlobCreated","data":{"url":"7.pdf","contentLength":30699}}`
	if err := transport.Send(ctx, core.Outgoing{ID: "1", Queue: "invoices", Body: []byte(event)}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-booked)
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: 7.pdf of 30699 bytes from /storage/invoices
}
