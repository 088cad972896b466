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

func main() {
	ctx, stop := context.WithCancel(context.Background())
	transport := inmemory.Open() // the transport is the only line that changes

	greeter, err := core.New("greeter", transport, core.Config{})
	if err != nil {
		log.Fatal(err) // lists all mistakes at once
	}
	core.Handle(greeter, "greet", func(ctx context.Context, m *core.TypedMessage[Greet]) error {
		if m.Attempt == 1 {
			return errors.New("the line is busy") // the message is retried at once
		}
		fmt.Println("hello,", m.Body.Name)
		stop() // Run drains and returns
		return nil
	})
	if err := errors.Join(
		greeter.Provision(ctx), // creates the queues
		greeter.Send(ctx, "greeter", "greet", Greet{Name: "world"}),
		greeter.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
}
