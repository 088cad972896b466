// Hello handles one message, whose first attempt fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type Greet struct{ Name string }

var greet = core.NewMessageType[Greet]("greet") // the name on the wire

func main() {
	ctx, stop := context.WithCancel(context.Background())
	greeter, err := core.New("greeter", inmemory.Open(), core.Config{}) // a broker instead: only this line changes
	if err != nil {
		log.Fatal(err) // lists all mistakes at once
	}
	core.Handle(greeter, greet, func(_ context.Context, m *core.Message, body Greet) error {
		if m.Attempt == 1 {
			return errors.New("the line is busy") // the message is retried at once
		}
		fmt.Println("hello,", body.Name)
		stop() // Run drains and returns
		return nil
	})
	if err := errors.Join(
		greeter.Provision(ctx), // creates the queues
		greeter.Send(ctx, "greeter", greet.Of(Greet{Name: "world"})),
		greeter.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
}
