//go:build darwin || linux

// Command cmd runs the test server of Azure Service Bus as a separate process, until it is
// interrupted or killed.
//
//	go run ./internal/testserver/asb/sbserver/cmd -addr 127.0.0.1:5800 -lock 3s -topic t1=s1,s2
//
// It prints the connection string as soon as it accepts connections, and the address of
// the administration API. A queue is created when it is first used, and gets sessions
// when a receiver first asks for one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// topic is a value of the flag -topic.
type topic struct {
	name          string
	subscriptions []string
}

// options are the values of the flags.
type options struct {
	server sbserver.Config
	topics []topic
	queues []string

	control string // the address for faults; "" means none
}

// run serves until ctx ends. It prints the addresses as soon as the server accepts connections.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	s, err := sbserver.Start(o.server)
	if err != nil {
		return err
	}
	if err := create(s.Broker(), o); err != nil {
		return errors.Join(err, s.Close())
	}
	if o.control != "" {
		l, err := net.Listen("tcp", o.control)
		if err != nil {
			return errors.Join(err, s.Close())
		}
		h := &http.Server{Handler: newControl(s), ReadHeaderTimeout: time.Minute}
		defer func() { _ = h.Close() }() // the process ends
		go func() { _ = h.Serve(l) }()   // it returns when it is closed
	}
	fmt.Fprintf(out, "%s\nhttp://%s\n", s.ConnectionString(), s.AdminAddr())
	<-ctx.Done()
	return s.Close()
}

func parse(args []string) (options, error) {
	var o options
	cfg := &o.server.Broker
	queue := &cfg.AutoQueue
	flags := flag.NewFlagSet("sbserver", flag.ContinueOnError)
	flags.StringVar(&o.server.Addr, "addr", "127.0.0.1:5800", "`address` to listen on")
	flags.StringVar(&o.server.AdminAddr, "admin-addr", "127.0.0.1:5801", "`address` of the administration API, which is without TLS")
	flags.StringVar(&o.control, "control-addr", "", "`address` at which another process has this one fail, by HTTP (internal/testserver/asb)")
	flags.DurationVar(&o.server.Latency, "latency", 0, "`duration` by which everything that is sent to clients arrives later")
	flags.StringVar(&cfg.Dir, "dir", "", "`directory` of the journal that keeps everything; without it all is lost at the end")
	flags.BoolVar(&cfg.AutoCreate, "auto-create", true, "let queues appear when they are first used")
	flags.BoolVar(&cfg.EmulatorLimits, "emulator-limits", false, "refuse the properties of queues, topics and subscriptions that Microsoft's emulator refuses")
	flags.DurationVar(&queue.LockDuration, "lock", time.Minute, "`duration` of the locks of messages and sessions")
	delivery := flags.Int("max-delivery-count", 10, "`number` of deliveries after which a message is dead-lettered")
	flags.Func("tier", "`tier` of the namespace: Standard, the default, or Premium", func(v string) error {
		if cfg.Tier = properties.Tier(v); cfg.Tier != properties.Standard && cfg.Tier != properties.Premium {
			return fmt.Errorf("%q is neither Standard nor Premium", v)
		}
		return nil
	})
	flags.StringVar(&o.server.Key, "key", "", "shared access `key` that clients must have; by default any will do")
	flags.DurationVar(&o.server.TokenLifetime, "token-lifetime", 0, "`duration` after which tokens end; by default they end when they say so")
	flags.Func("topic", "a topic and its subscriptions, `name=s1,s2`; can be repeated", func(v string) error {
		name, list, _ := strings.Cut(v, "=")
		t := topic{name: name}
		if list != "" {
			t.subscriptions = strings.Split(list, ",")
		}
		o.topics = append(o.topics, t)
		return nil
	})
	flags.Func("queue", "a queue, `name`; can be repeated", func(v string) error {
		o.queues = append(o.queues, v)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("sbserver: unexpected argument %q; to fix: name flags only", flags.Arg(0))
	}
	queue.MaxDeliveryCount = int32(*delivery)
	return o, nil
}

// create creates the entities of the flags. Those in the journal stay unchanged.
func create(b *broker.Broker, o options) error {
	for _, name := range o.queues {
		if err := unlessExists(b.CreateQueue(name, o.server.Broker.AutoQueue)); err != nil {
			return err
		}
	}
	for _, t := range o.topics {
		if err := unlessExists(b.CreateTopic(t.name, properties.Topic{})); err != nil {
			return err
		}
		for _, name := range t.subscriptions {
			p := properties.Subscription{
				LockDuration:     o.server.Broker.AutoQueue.LockDuration,
				MaxDeliveryCount: o.server.Broker.AutoQueue.MaxDeliveryCount,
			}
			if err := unlessExists(b.CreateSubscription(t.name, name, p, rules.Rule{})); err != nil {
				return err
			}
		}
	}
	return nil
}

func unlessExists(err error) error {
	if condition.Of(err) == condition.EntityAlreadyExists {
		return nil
	}
	return err
}
