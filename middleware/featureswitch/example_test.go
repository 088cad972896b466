package featureswitch_test

import (
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/featureswitch"
)

func ExampleNew() {
	// snippet: switch
	refunds, err := featureswitch.New(featureswitch.Config{
		Name:  "refunds",
		State: featureswitch.Off, // until somebody calls refunds.Set(featureswitch.On)
	})
	if err != nil {
		panic(err)
	}
	config := core.Config{
		Middleware: []core.Middleware{refunds.For("orders.refund")}, // other types are handled
	}
	// end
	fmt.Println(len(config.Middleware), refunds.State())
	// Output: 1 off
}

func ExampleConfig_lookup() {
	flags := map[string]bool{"recommendations": false}
	// snippet: lookup
	recommendations, err := featureswitch.New(featureswitch.Config{
		Name: "recommendations",
		Lookup: func() featureswitch.State { // at each message, so it must not wait
			on, known := flags["recommendations"]
			switch {
			case !known:
				return featureswitch.Unknown
			case on:
				return featureswitch.On
			}
			return featureswitch.Off
		},
		Unknown: featureswitch.On,      // without it such a message fails
		Off:     featureswitch.Discard, // they are not needed later
	})
	// end
	fmt.Println(recommendations.State(), err)
	// Output: off <nil>
}
