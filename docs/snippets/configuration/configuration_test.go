// Package configuration_test holds the code of docs/configuration.md.
package configuration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var errBusiness = errors.New("the order is not payable")

// snippet: settings
// Settings are the settings of the shop.
type Settings struct {
	Database       string
	PaymentTimeout time.Duration
	Messaging      configfile.Endpoints
}

// load reads the settings from a file. Variables such as SHOP_PAYMENT_TIMEOUT override it.
func load(path string, environ []string) (*Settings, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	settings := &Settings{PaymentTimeout: time.Minute} // a default
	if err := configfile.Decode(text, settings); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return settings, configfile.DecodeEnv(environ, "SHOP", settings) // os.Environ()
}

// end

// snippet: run
// run runs the endpoints of the file, each with the same code.
func run(ctx context.Context, settings *Settings, transport core.Transport, register map[string]func(*core.Endpoint)) error {
	code := core.Config{Recoverability: core.Recoverability{Unrecoverable: []error{errBusiness}}}
	var endpoints []*core.Endpoint
	for _, name := range settings.Messaging.Names() {
		config, err := settings.Messaging.Config(name, code)
		if err != nil {
			return err
		}
		endpoint, err := core.New(name, transport, config)
		if err != nil {
			return err
		}
		if register[name] == nil {
			return fmt.Errorf("the file has an endpoint %q, for which there are no handlers", name)
		}
		register[name](endpoint)
		endpoints = append(endpoints, endpoint)
	}
	return core.RunAll(ctx, endpoints...)
}

// end

func TestLoad_FileThenEnvironment(t *testing.T) {
	settings, err := load("shop.json", []string{
		"PATH=/bin",
		"SHOP_PAYMENT_TIMEOUT=45s",
		"SHOP_MESSAGING_DEFAULTS_RECOVERABILITY_ERROR_QUEUE=failed",
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_CONCURRENCY=64",
		"SHOP_MESSAGING_ENDPOINTS_ORDERS_RECOVERABILITY_MESSAGE_TYPES_ORDERS_SHIP_HANDLER_TIMEOUT=5m",
	})
	if err != nil {
		t.Fatal(err)
	}
	if settings.Database != "postgres://db/shop" || settings.PaymentTimeout != 45*time.Second {
		t.Errorf("%+v", settings)
	}
	delayed := core.Delayed{NumberOfRetries: 5, TimeIncrease: time.Minute}
	for name, want := range map[string]core.Config{
		"orders": {Concurrency: 64, Recoverability: core.Recoverability{
			ErrorQueue: "failed", Delayed: delayed, MessageTypes: map[string]core.TypeRecoverability{"orders.ship": {HandlerTimeout: 5 * time.Minute}},
		}},
		"mail": {Concurrency: 2, Recoverability: core.Recoverability{ErrorQueue: "failed", Delayed: delayed, Immediate: core.Immediate{NumberOfRetries: core.Off}}},
	} {
		if got, err := settings.Messaging.Config(name, core.Config{}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", name, err, got, want)
		}
	}
	if _, err := load("shop.json", []string{"SHOP_PAYMENT_TIMOUT=45s"}); err == nil || !strings.Contains(err.Error(), "SHOP_PAYMENT_TIMOUT: no setting has this variable; the nearest are SHOP_PAYMENT_TIMEOUT") {
		t.Errorf("%v", err)
	}
}

func TestRun_EndpointsOfTheFile(t *testing.T) {
	settings, err := load("shop.json", []string{"SHOP_MESSAGING_ENDPOINTS_ORDERS_RECOVERABILITY_MESSAGE_TYPES_ORDERS_SHIP_ERROR_QUEUE=unshipped"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	mailed := make(chan string, 1)
	ended := make(chan error, 1)
	ready := make(chan *core.Endpoint, 2)
	go func() {
		ended <- run(ctx, settings, inmemory.Open(), map[string]func(*core.Endpoint){
			"orders": func(ep *core.Endpoint) { ready <- ep },
			"mail": func(ep *core.Endpoint) {
				core.Handle(ep, send, func(_ context.Context, _ *core.Message, body string) error { mailed <- body; return nil })
				ready <- ep
			},
		})
	}()
	mail := <-ready // the names are in alphabetical order
	orders := <-ready
	<-mail.Ready()
	if err := orders.Send(t.Context(), "mail", send.Of("hello").With(core.SendOptions{})); err != nil {
		t.Fatal(err)
	}
	if got := <-mailed; got != "hello" {
		t.Errorf("mailed %q", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	err = run(t.Context(), settings, inmemory.Open(), nil)
	if err == nil || !strings.Contains(err.Error(), "no handlers") {
		t.Errorf("%v", err)
	}
}

func TestEndpoint_FileOfTheGuide(t *testing.T) {
	text, err := os.ReadFile("endpoint.json")
	if err != nil {
		t.Fatal(err)
	}
	// snippet: endpoint
	var config core.Config
	if err := configfile.Decode(text, &config); err != nil {
		t.Fatal(err)
	}
	config.Recoverability.Unrecoverable = []error{errBusiness} // code is set in Go
	// end
	if _, err := core.New("billing", inmemory.Open(), config); err != nil {
		t.Error(err)
	}
	if got := config.Recoverability.Delayed.Delays; !slices.Equal(got, []time.Duration{10 * time.Second, time.Minute, time.Hour}) {
		t.Errorf("delays are %v", got)
	}
}
