// Command yamlread reads YAML as Kubernetes does. Each line of standard input is a JSON string that holds one YAML
// document; each line of standard output is that document as JSON, or `"error: …"`.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	decoder := json.NewDecoder(in)
	for decoder.More() {
		var text string
		if err := decoder.Decode(&text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		read, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			read, _ = json.Marshal("error: " + err.Error())
		}
		fmt.Fprintf(out, "%s\n", read)
	}
}
