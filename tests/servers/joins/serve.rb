# Goal of this file: what each client in Ruby has in common; see serve.py.

PORT, DATABASE = ARGV[0].to_i, ARGV[1]

def serve
  $stdout.sync = true
  held = nil
  while (line = $stdin.gets)
    verb, name = line.split
    if verb == "free"
      held.release
      puts "free"
    else
      held = yield name
      puts held.acquire ? "held" : "busy"
    end
  end
end
