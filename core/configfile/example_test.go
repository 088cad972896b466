package configfile_test

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// A file has everything that is not code: the application's settings and Reprise's.
func ExampleDecode() {
	var settings struct {
		Database string
		Timeout  time.Duration
		Orders   core.Config
	}
	err := configfile.Decode([]byte(`{
		"database": "postgres://db/shop",
		"timeout": "30s",
		"orders": {
			"concurrency": 32,
			"recoverability": {
				"immediate": {"numberOfRetries": 2},
				"delayed": {"delays": ["1s", "10s", "5m"]},
				"messageTypes": {"orders.cancel": {"delayed": {"numberOfRetries": 0}}}
			}
		}
	}`), &settings)
	fmt.Println(settings.Timeout, settings.Orders.Concurrency, settings.Orders.Recoverability.Delayed.Delays, err)

	err = configfile.Decode([]byte(`{"orders": {"recoverability": {"delayed": {"timeIncrease": 10}}}}`), &settings)
	fmt.Println(err)
	err = configfile.Decode([]byte(`{"timeuot": "1m"}`), &settings)
	fmt.Println(err)
	// Output:
	// 30s 32 [1s 10s 5m0s] <nil>
	// configfile: orders.recoverability.delayed.timeIncrease is 10; write a duration as text, such as "10s"
	// configfile: timeuot is unknown here; known are database, timeout, orders
}

// Variables of the environment (in a program: os.Environ) replace the settings that the
// file says.
func ExampleDecodeEnv() {
	var settings struct {
		Timeout time.Duration
		Orders  core.Config
	}
	text := []byte(`{"timeout": "30s", "orders": {"concurrency": 32, "recoverability": {"messageTypes": {"orders.place": {}}}}}`)
	if err := configfile.Decode(text, &settings); err != nil {
		panic(err)
	}
	environ := []string{"PATH=/bin", "SHOP_TIMEOUT=1m", "SHOP_ORDERS_CONCURRENCY=64", "SHOP_ORDERS_RECOVERABILITY_MESSAGE_TYPES_ORDERS_PLACE_ERROR_QUEUE=unplaced"}
	err := configfile.DecodeEnv(environ, "SHOP", &settings)
	fmt.Println(settings.Timeout, settings.Orders.Concurrency, settings.Orders.Recoverability.MessageTypes["orders.place"].ErrorQueue, err)

	err = configfile.DecodeEnv([]string{"SHOP_ORDERS_CONCURRENCY=many"}, "SHOP", &settings)
	fmt.Println(err)
	// Output:
	// 1m0s 64 unplaced <nil>
	// configfile: SHOP_ORDERS_CONCURRENCY: orders.concurrency is "many"; it must be a whole number
}

// An operator sees the configuration in force, with its defaults.
func ExampleEncode() {
	endpoint, err := core.New("orders", inmemory.Open(), core.Config{Concurrency: 32, OutageLimit: core.Off})
	if err != nil {
		panic(err)
	}
	text, err := configfile.Encode(endpoint.Config().Recoverability)
	fmt.Println(string(text), err)
	// Output:
	// {"immediate":{"numberOfRetries":5},"delayed":{"numberOfRetries":3,"timeIncrease":"10s"},"errorQueue":"error","retryAfterLimit":"1h0m0s","maxDeliveries":50,"requeueDelay":"1s"} <nil>
}

// One file configures the endpoints of a process that runs several.
func ExampleEndpoints() {
	var settings struct {
		Database  string
		Messaging configfile.Endpoints
	}
	err := configfile.Decode([]byte(`{
		"database": "postgres://db/shop",
		"messaging": {
			"defaults": {"concurrency": 8},
			"endpoints": {"orders": {"concurrency": 32}, "billing": {}}
		}
	}`), &settings)
	if err != nil {
		panic(err)
	}
	code := core.Config{Recoverability: core.Recoverability{Unrecoverable: []error{context.Canceled}}}
	for _, name := range settings.Messaging.Names() {
		config, err := settings.Messaging.Config(name, code)
		fmt.Println(name, config.Concurrency, config.Recoverability.Unrecoverable, err)
	}
	// Output:
	// billing 8 [context canceled] <nil>
	// orders 32 [context canceled] <nil>
}
