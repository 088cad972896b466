//go:build darwin || linux

package rabbitmq

import (
	"errors"
	"os"
	"path/filepath"
)

// prefix begins the names of servers' directories.
const prefix = "reprise-rabbitmq-"

// files is a server's directory.
type files string

// The files in it that the server and rabbitmqctl read and write.
const (
	dataFiles     = "data"
	homeFiles     = "home" // has the cookie by which nodes authenticate each other
	logFiles      = "log"  // unused, the log goes to the standard output
	confFile      = "rabbitmq.conf"
	advancedFile  = "advanced.config"
	pluginsFile   = "enabled_plugins"
	noFile        = "none" // does not exist
	caFile        = "ca.pem"
	chainFile     = "certificate.pem"
	chainKeyFile  = "key.pem"
	linked        = "rabbitmq" // like RabbitMQ's own directory
	linkedPlugins = linked + "/plugins"
	linkedModules = linkedPlugins + "/zz_modules/ebin" // Erlang looks in the last name first
	evalProgram   = "eval.erl"                         // in homeFiles
	evalSocket    = "eval"                             // in homeFiles
	emptyAdvanced = "[].\n"
)

func (f files) path(name string) string { return filepath.Join(string(f), name) }

func (f files) make() error {
	var err error
	for _, name := range []string{dataFiles, homeFiles, logFiles} {
		err = errors.Join(err, os.Mkdir(f.path(name), 0o700))
	}
	return err
}

func (f files) write(name, content string) error {
	return os.WriteFile(f.path(name), []byte(content), 0o600)
}

func (f files) writeConfiguration(conf, plugins string) error {
	return errors.Join(f.write(confFile, conf), f.write(advancedFile, emptyAdvanced), f.write(pluginsFile, plugins), f.write(filepath.Join(homeFiles, evalProgram), evaluator))
}

func (f files) writeCertificate(c *certificate) error {
	return errors.Join(f.write(caFile, string(c.ca)), f.write(chainFile, string(c.chain)), f.write(chainKeyFile, string(c.key)))
}
