package core_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"log"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// jsonAndXML writes JSON, and reads XML too: during a change of formats, or beside
// programs with another one.
type jsonAndXML struct{ core.Codec }

func (c jsonAndXML) Decode(contentType string, body []byte, v any) error {
	if contentType == "text/xml" {
		return xml.Unmarshal(body, v)
	}
	return c.Codec.Decode(contentType, body, v) // refuses all other types
}

// A codec may read several formats, by the content type of each message.
func ExampleCodec() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	placedType := core.NewMessageType[[]byte]("orders.placed")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	ep := exampleEndpoint("billing", transport, core.Config{Codec: jsonAndXML{core.JSON}})
	handled := make(chan string)
	core.Handle(ep, placed.MessageType, func(_ context.Context, _ *core.Message, body OrderPlaced) error {
		handled <- "order " + body.ID
		return nil
	})
	stop := startExample(ep)
	defer stop()

	if err := ep.Send(context.Background(), "billing", placed.MessageType.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	err := ep.Send(context.Background(), "billing", placedType.Of([]byte(`<OrderPlaced><ID>8</ID></OrderPlaced>`)).With(core.SendOptions{ContentType: "text/xml"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	// Output:
	// order 7
	// order 8
}
