//go:build darwin || linux

package rabbitmq

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// settings are lines of rabbitmq.conf.
type settings map[string]string

var settingName = regexp.MustCompile(`^[A-Za-z0-9_]+(\.[A-Za-z0-9_$/-]+)*$`)

// configuration checks the settings that a test wants in rabbitmq.conf.
func configuration(wanted map[string]string) (settings, error) {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !settingName.MatchString(name) {
			return nil, fmt.Errorf("Config.Settings has %q, which is no name of a setting", name)
		}
		if strings.ContainsAny(wanted[name], "\r\n\x00") {
			return nil, fmt.Errorf("Config.Settings[%q] has more than one line", name)
		}
	}
	return wanted, nil
}

// configure returns rabbitmq.conf with the settings of the test and the server's addresses.
func (s *Server) configure(wanted settings) string {
	all := settings{
		"loopback_users": "none", // a proxy may have another address
		// Two lines for each connection are a tenth of the work of a test server.
		"log.console.level": "warning",
		// So are statistics that no test asks for: rates and sums, which the management
		// interface shows, and what every connection, channel and queue reports for them.
		"management_agent.disable_metrics_collector": "true",
		"collect_statistics_interval":                "600000", // milliseconds
	}
	maps.Copy(all, wanted)
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, "listeners.") })
	maps.Copy(all, settings{
		"listeners.tcp.1":     s.ports.amqp.Addr(),
		"management.tcp.ip":   "127.0.0.1",
		"management.tcp.port": strconv.Itoa(s.ports.management.Number()),
	})
	if s.ca != nil {
		maps.Copy(all, settings{
			"listeners.ssl.1":        s.ports.tls.Addr(),
			"ssl_options.cacertfile": s.installed.inside(s.files.path(caFile)),
			"ssl_options.certfile":   s.installed.inside(s.files.path(chainFile)),
			"ssl_options.keyfile":    s.installed.inside(s.files.path(chainKeyFile)),
		})
	}
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&conf, "%s = %s\n", name, all[name])
	}
	return conf.String()
}

// environment returns the variables that the server and rabbitmqctl get in addition to the
// inherited ones.
func (s *Server) environment() []string {
	file := func(name string) string { return s.installed.inside(s.files.path(name)) }
	// Erlang's threads sleep at once where they have nothing to do. By default they first look
	// for work again and again, which takes processor time from the tests.
	schedulers := "+sbwt none +sbwtdcpu none +sbwtdio none "
	if !s.allProcessors {
		schedulers += "+S 1:1 "
	}
	return []string{
		"HOME=" + file(homeFiles),
		"LC_ALL=C.UTF-8",
		"RABBITMQ_NODENAME=" + node,
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(s.ports.nodes.Number()),
		"ERL_EPMD_PORT=" + strconv.Itoa(s.ports.names.Number()),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_CRASH_DUMP=" + file("crash"),
		"RABBITMQ_MNESIA_BASE=" + file(dataFiles),
		"RABBITMQ_LOG_BASE=" + file(logFiles),
		"RABBITMQ_LOGS=-", // the standard output
		"RABBITMQ_CONFIG_FILE=" + file(confFile),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + file(advancedFile),
		"RABBITMQ_PLUGINS_DIR=" + file(linkedPlugins),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + file(pluginsFile),
		"RABBITMQ_CONF_ENV_FILE=" + file(noFile),
		// The script becomes Erlang instead of waiting for it, so that this process is the
		// parent; and -noinput keeps Erlang from reading its input all the same.
		"RABBITMQ_ALLOW_INPUT=true",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=" + schedulers + "-noinput +B i -start_epmd false -kernel inet_dist_use_interface {127,0,0,1} " +
			`-eval file:eval(os:getenv("HOME")++"/` + evalProgram + `"). ` + mark + " " + filepath.Base(string(s.files)),
		// rabbitmqctl listens on any free port.
		"RABBITMQ_CTL_DIST_PORT_MIN=0",
		"RABBITMQ_CTL_DIST_PORT_MAX=0",
	}
}
